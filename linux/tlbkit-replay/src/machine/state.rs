//! What a replay keeps: its spaces, its CPUs, and what was counted.

use super::core::Core;
use super::sums::Sums;
use crate::op::{Space, Who};
use crate::prices::Capacity;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{AddressSpace, Tlb};

/// The first space's top-level table; those of a space's halves lie side by side.
pub(super) const FIRST_ROOT: u64 = 0x10_0000;
pub(super) const ROOT_STEP: u64 = 0x2000;

/// What of a caller is left out of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spared {
    /// Nothing.
    Nothing,
    /// The faults that follow its calls; these go on, and only mark the pages, as MADV_FREE does.
    Faults,
    /// Its calls, with their flushes and the faults that follow them.
    Calls,
}

/// CPUs, spaces and counts.
pub(super) struct Replay<'k> {
    pub(super) tlb: Tlb<'k>,
    pub(super) spaces: Vec<AddressSpace<&'k [AtomicU64]>>,
    pub(super) cores: Vec<Core>,
    pub(super) sums: RefCell<Sums>,
    /// The ceilings of the runs, the lowest first; the highest is the policy's.
    pub(super) ceilings: Vec<u32>,
    /// How many runs drop everything, of the first, where the policy flushes page by page.
    pub(super) whole: Cell<usize>,
    pub(super) capacity: Capacity,
    /// Most pages that were ever mapped in each space.
    pub(super) most_pages: &'k [u64],
    pub(super) now_ns: Cell<u64>,
    /// Who is charged.
    pub(super) who: Cell<Option<Who>>,
    /// Whose translations are being flushed, and which: first page and the page behind the last.
    pub(super) target: Cell<Option<Space>>,
    pub(super) revoked: Cell<(u64, u64)>,
}

impl<'k> Replay<'k> {
    pub(super) fn space(&self, space: Space) -> &AddressSpace<&'k [AtomicU64]> {
        &self.spaces[space.0 as usize]
    }

    /// Brings a CPU's time up to now.
    pub(super) fn pass(&self, cpu: u32) {
        self.cores[cpu as usize].pass(self.now_ns.get());
    }

    /// Who is in the set of the space, as `cpu` sees it.
    pub(super) fn members(&self, space: Space, cpu: u32) -> Members {
        let mut members = Members { has_own: false, has_others: false };
        for (index, word) in self.space(space).cpus().words().iter().enumerate() {
            let own = if index == (cpu / 64) as usize { 1 << (cpu % 64) } else { 0 };
            // Relaxed: one thread.
            let word = word.load(Ordering::Relaxed);
            members.has_own |= word & own != 0;
            members.has_others |= word & !own != 0;
        }
        members
    }

    /// What the space at `root` may have in a TLB, at most: its pages, or what fits.
    pub(super) fn most_entries(&self, root: u64) -> u64 {
        let Some(offset) = root.checked_sub(FIRST_ROOT) else { return 0 };
        self.most_pages[(offset / ROOT_STEP) as usize].min(self.capacity.entries)
    }

    /// The pages that are being taken from the space at `root`.
    pub(super) fn revoked_of(&self, root: u64) -> Range<u64> {
        let is_target = self.target.get().is_some_and(|space| root == FIRST_ROOT + u64::from(space.0) * ROOT_STEP);
        let (first, end) = self.revoked.get();
        if is_target { first..end } else { 0..0 }
    }
}

/// Who is in a set.
pub(super) struct Members {
    pub(super) has_own: bool,
    pub(super) has_others: bool,
}
