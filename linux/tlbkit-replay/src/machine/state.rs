//! The state of a replay: its spaces, its CPUs, and its counts.

use super::core::Core;
use crate::deduce::Deduced;
use crate::op::{Caller, Space};
use crate::prices::Capacity;
use crate::tally::Tally;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{AddressSpace, CpuSetUpkeep, CpuState, PhysAddr, Policy, SpaceToken, Tlb};

const KERNEL_ROOT: PhysAddr = PhysAddr(0x1000);
/// The address of the first space's top-level table. The two tables of a space under isolation lie side by side.
const FIRST_ROOT: u64 = 0x10_0000;
const ROOT_STEP: u64 = 0x2000;

/// The memory of the protocol in one replay.
pub(super) struct Memory {
    states: Vec<CpuState>,
    matrix: Vec<AtomicU64>,
    sets: Vec<AtomicU64>,
}

impl Memory {
    pub(super) fn new(deduced: &Deduced) -> Self {
        let cpus = deduced.cpus as usize;
        let zeros = |words: usize| (0..words).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        Self {
            states: (0..cpus).map(|_| CpuState::new()).collect(),
            matrix: zeros(Tlb::matrix_words(cpus)),
            sets: zeros(AddressSpace::set_words(cpus) * deduced.spaces as usize),
        }
    }
}

/// A replay under one policy.
pub(super) struct Replay<'k> {
    pub(super) tlb: Tlb<'k>,
    pub(super) spaces: Vec<AddressSpace<&'k [AtomicU64]>>,
    pub(super) cores: Vec<Core>,
    pub(super) tally: RefCell<Tally>,
    pub(super) capacity: Capacity,
    /// The most pages that were ever mapped in each space.
    most_pages: &'k [u64],
    pub(super) now_ns: Cell<u64>,
    /// The caller to which work is charged, if there is one.
    pub(super) who: Cell<Option<Caller>>,
    /// The space whose translations are being flushed, and which they are: the first page and the page behind the last.
    pub(super) target: Cell<Option<Space>>,
    pub(super) revoked: Cell<(u64, u64)>,
}

/// The policy, without trimming by generations: the trace itself shows when Linux 6 trims CPU sets.
fn as_the_trace_shows(policy: Policy) -> Policy {
    match policy.cpu_set {
        CpuSetUpkeep::TrimmedWithTables { .. } => {
            Policy { cpu_set: CpuSetUpkeep::TrimmedWithTables { every: 0 }, ..policy }
        }
        _ => policy,
    }
}

impl<'k> Replay<'k> {
    pub(super) fn new(deduced: &'k Deduced, capacity: Capacity, policy: Policy, memory: &'k Memory) -> Self {
        let Memory { states, matrix, sets } = memory;
        let tlb = Tlb::new(states, matrix, KERNEL_ROOT, as_the_trace_shows(policy));
        let make = |(n, set)| {
            let root = PhysAddr(FIRST_ROOT + n as u64 * ROOT_STEP);
            AddressSpace::new(tlb.fresh_id(), SpaceToken(n as u64), root, set)
        };
        let words = AddressSpace::set_words(states.len());
        let replay = Self {
            spaces: sets.chunks(words).enumerate().map(make).collect(),
            cores: (0..states.len()).map(|_| Core::default()).collect(),
            tally: RefCell::default(),
            capacity,
            most_pages: &deduced.most_pages,
            now_ns: Cell::new(0),
            who: Cell::new(None),
            target: Cell::new(None),
            revoked: Cell::new((0, 0)),
            tlb,
        };
        replay.begin(deduced);
        replay.tally.take();
        replay
    }

    /// What was counted, when all operations have been done.
    pub(super) fn finish(self, deduced: &Deduced) -> Tally {
        for cpu in 0..deduced.cpus {
            self.pass(cpu);
            self.port(cpu).end();
        }
        let mut tally = self.tally.into_inner();
        for core in &self.cores {
            tally.busy_ns = tally.busy_ns.saturating_add(core.busy_ns.get());
            tally.asked_busy_ns = tally.asked_busy_ns.saturating_add(core.asked_busy_ns.get());
        }
        tally
    }

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
