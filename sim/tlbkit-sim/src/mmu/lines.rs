//! Which cache lines of page tables were read not long ago: a direct-mapped filter, one short tag per line.
//!
//! The caches themselves are not modelled. A hot reference costs a near hit, a cold one what the machine file says.

use tlbkit::PhysAddr;

const LINE_SHIFT: u32 = 6;

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

    /// True if the line of `pa` is near; from now on it is.
    #[inline(always)]
    pub(super) fn touch(&mut self, pa: PhysAddr) -> bool {
        if self.count == 0 {
            return false;
        }
        if self.tags.is_empty() {
            self.tags = vec![0; self.count];
        }
        let line = pa.0 >> LINE_SHIFT;
        // Plus one: a tag of zero is an empty place. Two lines that lie 65,535 filters apart share a tag.
        let tag = (line / self.count as u64 % u64::from(u16::MAX)) as u16 + 1;
        let place = &mut self.tags[line as usize & (self.count - 1)];
        std::mem::replace(place, tag) == tag
    }
}
