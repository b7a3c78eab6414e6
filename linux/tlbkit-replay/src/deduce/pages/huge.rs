//! Huge pages of one space: where they are, and where a fault could bring one.

use super::{Backing, Frames, Pages, TABLE};
use std::ops::Range;

impl Pages {
    /// How many pages may be mapped at most, a huge one counted as one. `u64::MAX` if the space is older than the
    /// trace.
    pub(in crate::deduce) fn most(&self) -> u64 {
        let (base, huge) = (self.mapped.count(), self.huge.len() as u64);
        if self.is_older { u64::MAX } else { base.saturating_sub(huge * (TABLE - 1)) }
    }

    /// The regions of 2 MiB in which `span` lies, as a range of base pages, if huge pages map all of them.
    pub(in crate::deduce) fn huge(&self, span: &Range<u64>) -> Option<Range<u64>> {
        let regions = span.start / TABLE..span.end.div_ceil(TABLE);
        let is_huge = regions.clone().all(|region| self.huge.contains(&region));
        is_huge.then_some(regions.start * TABLE..regions.end * TABLE)
    }

    /// Whether a huge page maps this page.
    pub(in crate::deduce) fn is_huge(&self, page: u64) -> bool {
        self.huge.contains(&(page / TABLE))
    }

    /// Whether a fault of this page can bring a huge page: its whole region belongs to one private mapping, is no
    /// stack, and has no page that is present.
    pub(in crate::deduce) fn has_room(&self, page: u64) -> bool {
        let first = page - page % TABLE;
        let region = first..first + TABLE;
        let is_within = |mapping: &Range<u64>| mapping.start <= region.start && region.end <= mapping.end;
        let is_private =
            self.mapping(page).is_some_and(|(range, backing)| backing == Backing::Private && is_within(&range));
        is_private && !self.stacks.contains(&(page / TABLE)) && !self.mapped.meets(&region)
    }

    /// A fault of this page brings a huge page of 2 MiB.
    pub(in crate::deduce) fn first_huge(&mut self, frames: &mut Frames, page: u64) {
        let first = page - page % TABLE;
        for page in first..first + TABLE {
            let frame = frames.fresh();
            self.put(frames, page, frame);
        }
        self.huge.insert(first / TABLE);
    }
}
