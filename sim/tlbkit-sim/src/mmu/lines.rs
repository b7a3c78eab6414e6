//! Which cache lines of page tables were read not long ago: a direct-mapped filter, one short tag per line.
//!
//! The caches themselves are not modelled. A hot reference costs a near hit, a cold one what the machine file says.

use tlbkit::PhysAddr;

const LINE_SHIFT: u32 = 6;

/// Where a line of a page table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TableLine {
    /// Not in a cache near by.
    Far,
    /// In a cache near by, because it was read not long ago.
    Near,
}

/// The filter. Storage is taken at the first walk.
#[derive(Clone, Debug)]
pub(super) struct NearLines {
    count: usize,
    tags: Vec<u16>,
}

impl NearLines {
    pub(super) fn new(count: usize) -> Self {
        assert!(count == 0 || count.is_power_of_two() && count <= 1 << 16, "a power of two of lines");
        Self { count, tags: Vec::new() }
    }

    /// Where the line of `pa` is; from now on it is near.
    #[inline(always)]
    pub(super) fn touch(&mut self, pa: PhysAddr) -> TableLine {
        if self.count == 0 {
            return TableLine::Far;
        }
        if self.tags.is_empty() {
            self.tags = vec![0; self.count];
        }
        let line = pa.0 >> LINE_SHIFT;
        // Plus one: a tag of zero is an empty place. Two lines that lie 65,535 filters apart share a tag.
        let tag = (line / self.count as u64 % u64::from(u16::MAX)) as u16 + 1;
        let place = &mut self.tags[line as usize & (self.count - 1)];
        if std::mem::replace(place, tag) == tag { TableLine::Near } else { TableLine::Far }
    }
}
