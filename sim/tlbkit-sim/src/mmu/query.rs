//! What the clairvoyant asks: who holds what, without touching replacement state or counters.

use tlbkit::{Pcid, PhysAddr, Stride, VirtAddr};

use super::entry::{GLOBAL, PageSize, Spot, frame_of, tag_of};
use super::level::Level;
use super::state::Mmu;

/// Up to so many base pages are looked up one by one; beyond, every entry is looked at.
const FEW_PAGES: u64 = 64;

impl Mmu {
    /// True if an entry of `pcid` translates any of `pages` pages of size `stride` from `va`. Globals do not count.
    #[must_use]
    pub fn holds(&self, pcid: Pcid, va: VirtAddr, pages: u64, stride: Stride) -> bool {
        let Some(tag) = self.known_tag(pcid) else { return false };
        let range = Range::new(va, pages, stride);
        self.levels().any(|level| level.epochs().live(tag) > 0 && range.overlaps(level, Owner::Tag(tag)))
    }

    /// True if a global entry translates any of `pages` pages of size `stride` from `va`.
    #[must_use]
    pub fn holds_global(&self, va: VirtAddr, pages: u64, stride: Stride) -> bool {
        let range = Range::new(va, pages, stride);
        self.levels().any(|level| level.epochs().live_globals() > 0 && range.overlaps(level, Owner::Global))
    }

    /// True if there is any entry of `pcid`.
    #[must_use]
    pub fn holds_any(&self, pcid: Pcid) -> bool {
        let Some(tag) = self.known_tag(pcid) else { return false };
        self.levels().any(|level| level.epochs().live(tag) > 0)
    }

    /// The tags that this CPU has met.
    pub(crate) fn tags(&self) -> impl Iterator<Item = Pcid> {
        self.met.iter().copied()
    }

    /// True if a paging-structure entry of `pcid` leads to the table at `table`.
    #[must_use]
    pub fn holds_path(&self, pcid: Pcid, table: PhysAddr) -> bool {
        let Some(tag) = self.known_tag(pcid) else { return false };
        let leads_there = |data| tag_of(data) == tag && frame_of(data) == table.0;
        self.path.epochs().live(tag) > 0 && self.path.living().any(|(_, data)| leads_there(data))
    }

    /// Living entries of the first and of the second level, globals included.
    #[must_use]
    pub fn live_entries(&self) -> (u32, u32) {
        (self.l1.epochs().live_total(), self.stlb.epochs().live_total())
    }

    fn levels(&self) -> impl Iterator<Item = &Level> {
        [&self.l1, &self.stlb].into_iter()
    }
}

#[derive(Clone, Copy)]
enum Owner {
    Tag(u16),
    Global,
}

/// Base pages, both ends included.
struct Range {
    first: u64,
    last: u64,
}

impl Range {
    /// No pages make an empty range: its end lies before its beginning.
    fn new(va: VirtAddr, pages: u64, stride: Stride) -> Self {
        let first = va.0 & !(stride.bytes() - 1);
        let base_pages = pages.saturating_mul(stride.bytes() >> 12);
        let first = PageSize::Small.page_of(VirtAddr(first));
        Self { first, last: first.saturating_add(base_pages).wrapping_sub(1) }
    }

    fn overlaps(&self, level: &Level, owner: Owner) -> bool {
        if self.last < self.first || self.last == u64::MAX {
            return false;
        }
        if self.last - self.first < FEW_PAGES {
            return (self.first..=self.last).any(|page| holds_page(level, page, owner));
        }
        level.any_within(self.first, self.last, |data| match owner {
            Owner::Tag(tag) => data & GLOBAL == 0 && tag_of(data) == tag,
            Owner::Global => data & GLOBAL != 0,
        })
    }
}

fn holds_page(level: &Level, page: u64, owner: Owner) -> bool {
    PageSize::ALL.into_iter().any(|size| {
        let spot = Spot::new(page >> (size.shift() - 12), size);
        match owner {
            Owner::Tag(tag) => level.find_tagged(spot, tag).is_some(),
            Owner::Global => level.find_global(spot).is_some(),
        }
    })
}
