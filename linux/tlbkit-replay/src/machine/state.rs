//! The state of a replay: its spaces, its CPUs, and its counts.

use super::core::Core;
use super::sums::Sums;
use crate::op::{Caller, Space};
use crate::prices::Capacity;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{AddressSpace, Tlb};

/// The address of the first space's top-level table. The two tables of a space under isolation lie side by side.
pub(super) const FIRST_ROOT: u64 = 0x10_0000;
pub(super) const ROOT_STEP: u64 = 0x2000;

/// Which work of a caller is left out of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spared {
    /// Nothing.
    Nothing,
    /// The faults that follow its system calls. The calls themselves only mark their pages, as `MADV_FREE` does.
    Faults,
    /// Its system calls, with their flushes and the faults that follow them.
    Calls,
}

/// A replay of several runs whose policies differ only in their ceilings.
pub(super) struct Replay<'k> {
    pub(super) tlb: Tlb<'k>,
    pub(super) spaces: Vec<AddressSpace<&'k [AtomicU64]>>,
    pub(super) cores: Vec<Core>,
    pub(super) sums: RefCell<Sums>,
    /// The ceilings of the runs, the lowest first. The policy of the protocol has the highest.
    pub(super) ceilings: Vec<u32>,
    /// How many runs, from the first on, drop everything in a flush that the policy does page by page.
    pub(super) whole: Cell<usize>,
    pub(super) capacity: Capacity,
    /// The most pages that were ever mapped in each space.
    pub(super) most_pages: &'k [u64],
    pub(super) now_ns: Cell<u64>,
    /// The caller to which work is charged, if there is one.
    pub(super) who: Cell<Option<Caller>>,
    /// The space whose translations are being flushed, and which they are: the first page and the page behind the last.
    pub(super) target: Cell<Option<Space>>,
    pub(super) revoked: Cell<(u64, u64)>,
}

impl<'k> Replay<'k> {
    pub(super) fn space(&self, space: Space) -> &AddressSpace<&'k [AtomicU64]> {
        &self.spaces[space.0 as usize]
    }

    /// Brings the time of a CPU up to the current one.
    pub(super) fn pass(&self, cpu: u32) {
        self.cores[cpu as usize].pass(self.now_ns.get());
    }

    /// Which CPUs are in the CPU set of the space, as seen from `cpu`.
    pub(super) fn members(&self, space: Space, cpu: u32) -> Members {
        let mut members = Members { has_own: false, has_others: false };
        for (index, word) in self.space(space).cpus().words().iter().enumerate() {
            let own = if index == (cpu / 64) as usize { 1 << (cpu % 64) } else { 0 };
            // Relaxed: only one thread runs.
            let word = word.load(Ordering::Relaxed);
            members.has_own |= word & own != 0;
            members.has_others |= word & !own != 0;
        }
        members
    }

    /// How many entries of the space `root` a TLB can hold at most: one for each of its pages, or as many as it has.
    pub(super) fn most_entries(&self, root: u64) -> u64 {
        let Some(offset) = root.checked_sub(FIRST_ROOT) else { return 0 };
        self.most_pages[(offset / ROOT_STEP) as usize].min(self.capacity.entries)
    }

    /// The pages that are being revoked in the space `root`. Empty if another space is flushed.
    pub(super) fn revoked_of(&self, root: u64) -> Range<u64> {
        let is_target = self.target.get().is_some_and(|space| root == FIRST_ROOT + u64::from(space.0) * ROOT_STEP);
        let (first, end) = self.revoked.get();
        if is_target { first..end } else { 0..0 }
    }
}

/// Which CPUs are in a CPU set, as seen from one of them.
pub(super) struct Members {
    pub(super) has_own: bool,
    pub(super) has_others: bool,
}
