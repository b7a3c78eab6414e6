//! What the machine knows that no kernel can: which interrupts and invalidations were needed.
//!
//! An interrupt is needed only by a CPU that runs the space and holds an entry of the range being changed, in either
//! half of an isolated space, or a cached path through a table that was taken out. A CPU that keeps the space loaded
//! while it idles uses no entry; only the path matters, which its walker may follow at any time. The kernel's own space
//! runs everywhere, under every tag. An invalidation is needed only where it removed something.

#[cfg(test)]
mod tests;

use tlbkit::{PAGE_BYTES, Pcid, PhysAddr, Stride, VirtAddr};

use super::ledger::Class;
use crate::mmu::{self, Mmu};

/// The first table of the user half lies one frame above the kernel's.
const USER_HALF_BYTES: u64 = PAGE_BYTES;

/// Whose mappings an operation changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The space with its first table there.
    Space(PhysAddr),
    /// The kernel: every space contains them.
    Kernel,
}

/// What a CPU is changing.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    owner: Owner,
    range: Option<(u64, u64)>,
    unhooked: Vec<PhysAddr>,
}

impl Operation {
    /// Changes the mappings of `range`, as address and pages, or of all addresses.
    pub(super) const fn new(owner: Owner, range: Option<(u64, u64)>) -> Self {
        Self { owner, range, unhooked: Vec::new() }
    }

    /// The table at `at` was taken out of the page tables.
    pub(super) fn note_unhooked(&mut self, at: PhysAddr) {
        self.unhooked.push(at);
    }

    /// The range and the space that it changes, as first table, address and pages; none for the kernel's own addresses
    /// and for a whole space.
    pub(super) fn range_of_space(&self) -> Option<(PhysAddr, (u64, u64))> {
        match self.owner {
            Owner::Space(root) => Some((root, self.range?)),
            Owner::Kernel => None,
        }
    }

    /// True if a CPU that runs `class` with this `mmu` would go wrong without the interrupt.
    pub(super) fn concerns(&self, mmu: &Mmu, class: Class) -> bool {
        match self.owner {
            Owner::Kernel => self.holds_global(mmu) || mmu.tags().any(|tag| self.holds(mmu, tag)),
            Owner::Space(root) => {
                let loaded = mmu.cr3().root();
                if loaded != root && loaded.0 != root.0 + USER_HALF_BYTES {
                    return false;
                }
                let halves = [mmu.pcid(), Pcid(mmu.pcid().0 ^ Pcid::USER_BIT)];
                halves.into_iter().any(|tag| {
                    class == Class::Task && self.holds(mmu, tag)
                        || self.unhooked.iter().any(|&table| mmu.holds_path(tag, table))
                })
            }
        }
    }

    fn holds(&self, mmu: &Mmu, tag: Pcid) -> bool {
        match self.range {
            Some((va, pages)) => mmu.holds(tag, VirtAddr(va), pages, Stride::Page4K),
            None => mmu.holds_any(tag),
        }
    }

    fn holds_global(&self, mmu: &Mmu) -> bool {
        self.range.is_some_and(|(va, pages)| mmu.holds_global(VirtAddr(va), pages, Stride::Page4K))
    }
}

/// Entries that went because their page was named. What a fractured TLB loses besides made no invalidation needed.
pub(super) fn lost_by_name(mmu: &Mmu) -> u64 {
    let lost = &mmu.counters().lost;
    [mmu::LossCause::Invlpg, mmu::LossCause::Invpcid].into_iter().map(|cause| lost[cause].l1 + lost[cause].stlb).sum()
}

/// Entries that `flush` removed.
pub(super) fn lost_by(mmu: &mut Mmu, flush: impl FnOnce(&mut Mmu)) -> u64 {
    let before = mmu.live_entries();
    flush(mmu);
    let after = mmu.live_entries();
    u64::from(before.0.saturating_sub(after.0) + before.1.saturating_sub(after.1))
}
