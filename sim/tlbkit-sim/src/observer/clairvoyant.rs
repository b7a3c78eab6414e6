//! What the machine knows that no kernel can: which interrupts and invalidations were needed.
//!
//! An interrupt is needed only by a CPU that runs the space and holds an entry of the range being changed, in either
//! half of an isolated space, or a cached path through a table that was taken out. A CPU that keeps the space loaded
//! while it idles uses no entry; only the path matters, which its walker may follow at any time. The kernel's own space
//! runs everywhere, under every tag. An invalidation is needed only where it removed something.

use std::ops::Range;

use tlbkit::{PAGE_BYTES, Pcid, PhysAddr, Stride, VirtAddr};
use tlbkit_pmap::USER_END;

use super::ledger::Class;
use crate::mmu::{self, Mmu};

/// The first table of the user half lies one frame above the kernel's.
pub(super) const USER_HALF_BYTES: u64 = PAGE_BYTES;

/// Whose mappings an operation changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The space with its first table there.
    Space(PhysAddr),
    /// The kernel: every space contains them.
    Kernel,
}

/// What becomes of the pages whose mappings an operation changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    /// The program keeps them, with other permissions or as a copy: it must not use what was there.
    Keeps,
    /// The program has given them up, but not their addresses: what it finds there next is another page.
    Empties,
    /// The program has given away pages and addresses. Which access it still makes by an old translation is its own
    /// affair.
    GivesAway,
}

/// What a CPU is changing.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    owner: Owner,
    pub(super) intent: Intent,
    range: Option<(u64, u64)>,
    unhooked: Vec<PhysAddr>,
}

impl Operation {
    /// Changes the mappings of `range`, as address and pages, or of all addresses.
    pub(super) const fn new(owner: Owner, range: Option<(u64, u64)>, intent: Intent) -> Self {
        Self { owner, intent, range, unhooked: Vec::new() }
    }

    /// The space and its addresses that are changed; none if they are the kernel's.
    pub(super) fn place(&self) -> Option<(PhysAddr, Range<u64>)> {
        let Owner::Space(root) = self.owner else { return None };
        Some((root, self.range.map_or(0..USER_END, |(va, pages)| va..va + pages * PAGE_BYTES)))
    }

    /// The table at `at` was taken out of the page tables.
    pub(super) fn note_unhooked(&mut self, at: PhysAddr) {
        self.unhooked.push(at);
    }

    /// True if a CPU that runs `class` with this `mmu`, which has `loaded` that space, would go wrong without the
    /// interrupt.
    pub(super) fn concerns(&self, mmu: &Mmu, class: Class, loaded: PhysAddr) -> bool {
        match self.owner {
            Owner::Kernel => self.holds_global(mmu) || mmu.tags().any(|tag| self.holds(mmu, tag)),
            Owner::Space(root) => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Phys, Pressure};
    use crate::mmu::{Access, MmuConfig, Overlap, Privilege};
    use tlbkit::Cr3;
    use tlbkit_pmap::{Memory, Purpose};

    const PAGE: u64 = 0x40_0000_0000;
    const OTHER_PAGE: u64 = PAGE + 4096;
    const GLOBAL: u64 = 1 << 8;
    const KERNEL: Pcid = Pcid(3);
    const USER: Pcid = Pcid(0x803);

    fn concerns(operation: &Operation, mmu: &Mmu, class: Class) -> bool {
        operation.concerns(mmu, class, mmu.cr3().root())
    }

    /// One space with two pages.
    struct Space {
        phys: Phys,
        root: PhysAddr,
        last_table: PhysAddr,
    }

    fn space(leaf_flags: u64) -> Space {
        let phys = Phys::new(Pressure::None);
        // Two frames: a root for each half.
        let root = phys.alloc(13, Purpose::Table).unwrap().at;
        let mut table = root;
        for level in (1..4).rev() {
            let below = phys.alloc(12, Purpose::Table).unwrap().at;
            let index = PAGE >> (12 + 9 * level) & 511;
            phys.store(PhysAddr(table.0 + 8 * index), below.0 | 7);
            if level == 3 {
                phys.store(PhysAddr(table.0 + 4096 + 8 * index), below.0 | 7);
            }
            table = below;
        }
        for (index, va) in [PAGE, OTHER_PAGE].into_iter().enumerate() {
            let frame = phys.alloc(12, Purpose::Data).unwrap().at;
            assert_eq!(va >> 12 & 511, index as u64);
            phys.store(PhysAddr(table.0 + 8 * index as u64), frame.0 | 7 | leaf_flags);
        }
        Space { phys, root, last_table: table }
    }

    /// A CPU that has used one page of the space under a tag.
    fn cpu(space: &Space, va: u64, tag: Pcid) -> Mmu {
        let machine = tlbkit_machine::Machine::builtin("skylake-desktop-pti").unwrap();
        let mut mmu = Mmu::new(MmuConfig::of(&machine));
        let half = if tag == USER { USER_HALF_BYTES } else { 0 };
        mmu.write_cr3(Cr3::flushing(PhysAddr(space.root.0 + half), tag));
        mmu.translate(VirtAddr(va), Access::Read, Privilege::User, Overlap::Dependent, &space.phys).unwrap();
        mmu
    }

    fn change(owner: Owner) -> Operation {
        Operation::new(owner, Some((PAGE, 1)), Intent::Keeps)
    }

    #[test]
    fn a_cpu_needs_telling_if_it_runs_the_space_and_holds_the_page() {
        let space = space(0);
        let operation = change(Owner::Space(space.root));
        assert!(concerns(&operation, &cpu(&space, PAGE, KERNEL), Class::Task));
        assert!(!concerns(&operation, &cpu(&space, OTHER_PAGE, KERNEL), Class::Task), "it never used this page");
        assert!(!concerns(&operation, &cpu(&space, PAGE, KERNEL), Class::Idle), "no program can use what it holds");
    }

    #[test]
    fn a_cpu_that_has_gone_to_another_space_is_left_alone() {
        let (space, other) = (space(0), space(0));
        let mut mmu = cpu(&space, PAGE, KERNEL);
        mmu.write_cr3(Cr3::flushing(PhysAddr(other.root.0 + (1 << 30)), Pcid(4)));
        assert!(mmu.holds(KERNEL, VirtAddr(PAGE), 1, Stride::Page4K), "its tag still has the entry");
        assert!(!concerns(&change(Owner::Space(space.root)), &mmu, Class::Task));
    }

    #[test]
    fn an_entry_of_the_user_half_counts_while_the_kernel_half_is_loaded() {
        let space = space(0);
        let mut mmu = cpu(&space, PAGE, USER);
        mmu.write_cr3(Cr3::keeping(space.root, KERNEL));
        assert!(concerns(&change(Owner::Space(space.root)), &mmu, Class::Task));
    }

    #[test]
    fn a_path_through_a_freed_table_concerns_even_an_idle_cpu() {
        let space = space(0);
        let mmu = cpu(&space, OTHER_PAGE, KERNEL);
        let mut operation = change(Owner::Space(space.root));
        operation.note_unhooked(space.root);
        assert!(!concerns(&operation, &mmu, Class::Idle), "no path leads to that table");
        operation.note_unhooked(space.last_table);
        assert!(concerns(&operation, &mmu, Class::Idle));
    }

    #[test]
    fn an_entry_of_the_kernel_counts_under_every_tag_and_globally() {
        for flags in [0, GLOBAL] {
            let space = space(flags);
            let mut mmu = cpu(&space, PAGE, KERNEL);
            mmu.write_cr3(Cr3::flushing(space.root, Pcid(5)));
            assert!(concerns(&change(Owner::Kernel), &mmu, Class::Idle), "flags {flags:#x}");
        }
        assert!(!concerns(&change(Owner::Kernel), &cpu(&space(0), OTHER_PAGE, KERNEL), Class::Task));
    }
}
