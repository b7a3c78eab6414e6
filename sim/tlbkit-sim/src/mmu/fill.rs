//! What an access leaves in the first and the second level: filled after a walk, or taken out as it did not suffice.

use tlbkit::{PhysAddr, VirtAddr};

use super::access::{Cost, Hit};
use super::counters::{Loss, LossCause};
use super::entry::{self, PageSize, Spot};
use super::epochs::Displaced;
use super::level::Globals;
use super::state::{Mmu, Pieces};

/// A page that a walk found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    /// First byte of the page.
    pub(super) frame: PhysAddr,
    /// Its size.
    pub(super) size: PageSize,
    /// Rights of all levels together, and whether it is dirty and global.
    pub(super) flags: u64,
}

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) data: u64,
    pub(super) size: PageSize,
}

impl Mmu {
    /// The answer to an access, by an entry that is the latest of its set.
    #[inline(always)]
    pub(super) fn answer(&mut self, va: VirtAddr, held: Held, cost: Cost) -> Hit {
        let data = entry::base_page_of(held.data, va, held.size);
        self.l1.remember(va, data);
        Hit { pa: address(data, va), cost }
    }

    /// Fills both levels with what a walk found.
    #[inline(always)]
    pub(super) fn fill(&mut self, va: VirtAddr, leaf: &Leaf, cost: Cost) -> Hit {
        if leaf.size != PageSize::Small {
            return self.fill_larger(va, leaf, cost);
        }
        let data = entry::data(leaf.frame, leaf.flags, PageSize::Small, self.tag);
        self.fill_both(va, Held { data, size: PageSize::Small }, cost)
    }

    /// Fills the part of a page around `va` that this CPU caches as one.
    #[inline(never)]
    fn fill_larger(&mut self, va: VirtAddr, leaf: &Leaf, cost: Cost) -> Hit {
        let size = self.cached_as[leaf.size as usize];
        if size != leaf.size {
            self.pieces = Pieces::Some;
        }
        let within = va.0 & (leaf.size.bytes() - 1) & !(size.bytes() - 1);
        let data = entry::data(PhysAddr(leaf.frame.0 + within), leaf.flags, leaf.size, self.tag);
        self.fill_both(va, Held { data, size }, cost)
    }

    #[inline(always)]
    fn fill_both(&mut self, va: VirtAddr, entry: Held, cost: Cost) -> Hit {
        if self.stlb.holds(entry.size) {
            match self.stlb.fill(Spot::of(va, entry.size), entry.data) {
                Displaced::Nothing => {}
                Displaced::FlushedSelf => self.counters.refills += 1,
                Displaced::Living => self.counters.lost.add(LossCause::Capacity, Loss { l1: 0, stlb: 1 }),
            }
        }
        self.fill_l1(va, entry);
        self.answer(va, entry, cost)
    }

    #[inline(always)]
    pub(super) fn fill_l1(&mut self, va: VirtAddr, entry: Held) {
        if let Displaced::Living = self.l1.fill(Spot::of(va, entry.size), entry.data) {
            self.counters.lost.add(LossCause::Capacity, Loss { l1: 1, stlb: 0 });
        }
    }

    /// Drops what both levels hold for `va` under the loaded tag and globally: it did not suffice, or its page faulted.
    pub(super) fn forget_translation(&mut self, va: VirtAddr) {
        self.forget_first_level(va);
        let stlb = u64::from(self.stlb.remove_page(va, self.tag, Globals::Too));
        self.counters.lost.add(LossCause::Rewalk, Loss { l1: 0, stlb });
    }

    pub(super) fn forget_first_level(&mut self, va: VirtAddr) {
        let l1 = u64::from(self.l1.remove_page(va, self.tag, Globals::Too));
        self.counters.lost.add(LossCause::Rewalk, Loss { l1, stlb: 0 });
    }
}

/// The physical address of the byte at `va`, whose base page has this data.
#[inline(always)]
pub(super) const fn address(data: u64, va: VirtAddr) -> PhysAddr {
    PhysAddr(entry::frame_of(data) | va.0 & (PageSize::Small.bytes() - 1))
}
