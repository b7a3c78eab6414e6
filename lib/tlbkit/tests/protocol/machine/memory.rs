//! Page tables as maps, and what became of every mapping and table that was ever made.
//!
//! A *stamp* names one mapping, or one table, for ever. Its fate says whether hardware may reach it: live, unhooked
//! but not flushed yet, or freed. Reaching something freed is the one error that all tests look for.

use std::collections::BTreeMap;

use tlbkit::{PhysAddr, Stride};

/// Whose page tables: a space's index, or the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Owner {
    Space(usize),
    Kernel,
}

/// How far the life of a mapping or a table has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Live,
    Unhooked,
    Freed,
}

/// A present translation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) stride: Stride,
    pub(crate) stamp: usize,
}

/// Distance between the roots of two spaces; the user half is one page above.
const ROOT_STEP: u64 = 0x10_000;
/// From the root that CPUs share to one that is a CPU's own.
pub(crate) const OWN_ROOT: u64 = 0x2000;
pub(crate) const KERNEL_ROOT: PhysAddr = PhysAddr(0x8000_0000);

pub(crate) fn root_of(space: usize) -> PhysAddr {
    PhysAddr((space as u64 + 1) * ROOT_STEP)
}

/// The owner of a root, and whether it is the user half's.
pub(crate) fn owner_of(root: PhysAddr) -> Owner {
    if root == KERNEL_ROOT { Owner::Kernel } else { Owner::Space((root.0 / ROOT_STEP) as usize - 1) }
}

pub(crate) fn is_user_half(root: PhysAddr) -> bool {
    root.0 & 0x1000 != 0
}

/// All page tables.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) pages: BTreeMap<(Owner, u64), Page>,
    pub(crate) tables: BTreeMap<(Owner, u64), usize>,
    fates: Vec<(Owner, Fate)>,
    /// By index of the space.
    pub(crate) roots: Vec<Fate>,
}

impl Memory {
    fn stamp(&mut self, owner: Owner) -> usize {
        self.fates.push((owner, Fate::Live));
        self.fates.len() - 1
    }

    pub(crate) fn fate(&self, stamp: usize) -> Fate {
        self.fates[stamp].1
    }

    pub(crate) fn owner(&self, stamp: usize) -> Owner {
        self.fates[stamp].0
    }

    pub(crate) fn is_freed(&self, stamp: usize) -> bool {
        self.fate(stamp) == Fate::Freed
    }

    pub(crate) fn map(&mut self, owner: Owner, va: u64, stride: Stride) -> usize {
        let stamp = self.stamp(owner);
        let start = va & !(stride.bytes() - 1);
        assert!(self.pages.insert((owner, start), Page { stride, stamp }).is_none(), "mapped over a mapping");
        if stride == Stride::Page4K && !self.tables.contains_key(&(owner, va >> 21)) {
            let table = self.stamp(owner);
            self.tables.insert((owner, va >> 21), table);
        }
        stamp
    }

    /// The mapping that covers `va`, with its start.
    pub(crate) fn find(&self, owner: Owner, va: u64) -> Option<(u64, Page)> {
        [Stride::Page4K, Stride::Page2M, Stride::Page1G].into_iter().find_map(|stride| {
            let start = va & !(stride.bytes() - 1);
            self.pages.get(&(owner, start)).filter(|page| page.stride == stride).map(|page| (start, *page))
        })
    }

    pub(crate) fn unhook(&mut self, owner: Owner, va: u64) -> Option<Page> {
        let (start, page) = self.find(owner, va)?;
        self.pages.remove(&(owner, start));
        self.fates[page.stamp].1 = Fate::Unhooked;
        Some(page)
    }

    pub(crate) fn unhook_table(&mut self, owner: Owner, va: u64) -> Option<usize> {
        let table = self.tables.remove(&(owner, va >> 21))?;
        self.fates[table].1 = Fate::Unhooked;
        Some(table)
    }

    pub(crate) fn free(&mut self, stamps: &[usize]) {
        for &stamp in stamps {
            assert_eq!(self.fates[stamp].1, Fate::Unhooked, "freed twice, or while in use");
            self.fates[stamp].1 = Fate::Freed;
        }
    }

    /// Everything of a space that has ended.
    pub(crate) fn free_space(&mut self, space: usize) {
        self.roots[space] = Fate::Freed;
        let owner = Owner::Space(space);
        self.pages.retain(|(whose, _), _| *whose != owner);
        self.tables.retain(|(whose, _), _| *whose != owner);
        for (_, fate) in self.fates.iter_mut().filter(|(whose, _)| *whose == owner) {
            *fate = Fate::Freed;
        }
    }
}
