//! What the CPUs share.

use std::cell::Cell;

use loom::cell::UnsafeCell;
use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, Broadcast, Compare, CpuSetUpkeep, CpuState, GracePeriods, History, Isolation, Lazy, LazyReferences,
    LocalFlush, Passed, Policy, RangeRule, Reclaim, SpaceToken, Tags, Tlb, Unaccessed, Unmapping, UserFlush,
};
use tlbkit_pmap::{KernelMap, Vm};

use crate::core::Core;
use crate::memory::Words;

/// Few spaces, and nothing written at a switch but what is needed.
pub(crate) const POLICY: Policy = Policy {
    tags: Tags::Off,
    lazy: Lazy::SkipUnlessTablesFreed,
    lazy_references: LazyReferences::ShotDown,
    cpu_set: CpuSetUpkeep::Trimmed { every: 0 },
    range: RangeRule::Ceiling { pages: 33, compare: Compare::Above },
    isolation: Isolation::Off,
    user_flush: UserFlush::Invpcid,
    local_flush: LocalFlush::WhileRemote,
    broadcast: Broadcast::Off,
    unmapping: Unmapping::Awaited,
    directories: tlbkit::Directories::Shared,
    acknowledgement: tlbkit::Acknowledgement::AfterFlush,
    unaccessed: Unaccessed::Flushed,
    reclaim: Reclaim::Awaited,
    history: History::NONE,
};

/// Everything that the CPUs share, leaked: loom runs each execution from the beginning.
pub(crate) struct Machine {
    pub(crate) tlb: Tlb<'static>,
    pub(crate) mem: &'static Words,
    pub(crate) kernel: &'static KernelMap<'static>,
    pub(crate) vm: Vm<'static>,
    pub(crate) periods: GracePeriods<'static>,
    pub(crate) cores: Vec<Core>,
    /// An address that a CPU translates as long as it caches it: whoever has it anew has it alone.
    pub(crate) address: UnsafeCell<()>,
    /// True if a program has stored to the page that was clean.
    pub(crate) has_stored: Cell<bool>,
    /// True if the space's tables were freed.
    pub(crate) is_ended: Cell<bool>,
    /// CPUs whose program has not ended.
    pub(crate) busy: Cell<usize>,
}

fn words(values: &[u64]) -> &'static [AtomicU64] {
    Box::leak(values.iter().map(|&value| AtomicU64::new(value)).collect())
}

impl Machine {
    pub(crate) fn new(policy: Policy) -> &'static Self {
        let mem: &'static Words = Box::leak(Box::default());
        // One window is free; the others are in use.
        let kernel: &'static KernelMap<'static> =
            Box::leak(Box::new(KernelMap::new(mem, words(&[!1])).expect("memory")));
        let states: &'static [CpuState] = Box::leak((0..2).map(|_| CpuState::new()).collect());
        let matrix = words(&vec![0; Tlb::matrix_words(2)]);
        let tlb = Tlb::new(states, matrix, kernel.root(), policy);
        let set = words(&vec![0; AddressSpace::set_words(2)]);
        let vm = Vm::new(&tlb, mem, kernel, SpaceToken(0), set).expect("memory");
        let passed: &'static [Passed] = Box::leak((0..2).map(|_| Passed::new()).collect());
        Box::leak(Box::new(Self {
            tlb,
            mem,
            kernel,
            vm,
            periods: GracePeriods::new(passed),
            cores: (0..2).map(|_| Core::new()).collect(),
            address: UnsafeCell::new(()),
            has_stored: Cell::new(false),
            is_ended: Cell::new(false),
            busy: Cell::new(2),
        }))
    }
}
