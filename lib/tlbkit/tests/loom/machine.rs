//! The machine that loom explores: what its CPUs share.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;

use self_cell::self_cell;
use tlbkit::sync::AtomicU64;
use tlbkit::{
    Acknowledgement, AddressSpace, Broadcast, Compare, CpuSetUpkeep, CpuState, Directories, Features, GracePeriods,
    History, HostFlush, Isolation, KernelFlushes, Late, Lazy, LazyReferences, LocalFlush, Passed, PhysAddr, Policy,
    RangeRule, Reclaim, SpaceToken, Tags, Tlb, Unaccessed, Unmapping, UserFlush,
};

use crate::core::Core;
use crate::issued::Issued;
use crate::memory::Table;

/// The policy that the tests vary: nothing is written at a switch but what the handshakes need.
pub(crate) const POLICY: Policy = Policy {
    tags: Tags::RoundRobin(2),
    lazy: Lazy::SkipUnlessTablesFreed,
    lazy_references: LazyReferences::ShotDown,
    cpu_set: CpuSetUpkeep::Trimmed { every: 0 },
    range: RangeRule::Ceiling { pages: 33, compare: Compare::Above },
    isolation: Isolation::Off,
    user_flush: UserFlush::Invpcid,
    local_flush: LocalFlush::WhileRemote,
    broadcast: Broadcast::Off,
    unmapping: Unmapping::Awaited,
    directories: Directories::Shared,
    acknowledgement: Acknowledgement::AfterFlush,
    unaccessed: Unaccessed::Flushed,
    reclaim: Reclaim::Awaited,
    history: History::NONE,
};

/// The same where a responder acknowledges before it flushes.
pub(crate) const EARLY: Policy = Policy { acknowledgement: Acknowledgement::BeforeFlush, ..POLICY };

/// What a test runs on.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) policy: Policy,
    pub(crate) spaces: usize,
    pub(crate) pages: usize,
    pub(crate) kernel_pages: usize,
    /// The first so many CPUs are up before anything else; the others come for the first time in their programs.
    pub(crate) up: usize,
    /// What a CPU does at each turn of waiting about those that it waits for.
    pub(crate) late: Late,
    /// How often a wait only looks before it answers others.
    pub(crate) glances: u32,
    /// What the host flushes of a CPU that it does not run.
    pub(crate) host: HostFlush,
    pub(crate) kernel_flushes: KernelFlushes,
    /// The most pages that one INVLPGB takes, on a machine that has it.
    pub(crate) broadcast_pages: Option<NonZeroU32>,
    pub(crate) directories: Directories,
    /// CPUs load the same tables until somebody converts the space.
    pub(crate) is_joined: bool,
    /// Most switches, in one execution, away from a CPU that could go on: what bounds the exploration.
    pub(crate) preemptions: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: POLICY,
            spaces: 1,
            pages: 1,
            kernel_pages: 0,
            up: usize::MAX,
            late: Late::Wait,
            glances: 0,
            host: HostFlush::None,
            kernel_flushes: KernelFlushes::AtOnce,
            broadcast_pages: None,
            directories: Directories::Shared,
            is_joined: false,
            preemptions: 3,
        }
    }
}

/// The memory that the kernel supplies, and what it chose.
struct Storage {
    cpus: Vec<CpuState>,
    passed: Vec<Passed>,
    matrix: Vec<AtomicU64>,
    spaces: u64,
    policy: Policy,
}

/// The protocol's objects in it.
struct Protocol<'k> {
    tlb: Tlb<'k>,
    periods: GracePeriods<'k>,
    spaces: Vec<AddressSpace<Vec<AtomicU64>>>,
}

self_cell!(
    struct Kernel {
        owner: Storage,
        #[covariant]
        dependent: Protocol,
    }
);

/// Everything that the CPUs share.
pub(crate) struct Machine {
    kernel: Kernel,
    pub(crate) setup: Setup,
    pub(crate) tables: Vec<Table>,
    pub(crate) cores: Vec<Core>,
    /// CPUs whose program has not ended.
    pub(crate) busy: Cell<usize>,
    /// How often something has happened that another CPU may sleep for.
    pub(crate) announcements: Cell<usize>,
    /// Interrupts that were sent.
    pub(crate) interrupts: Cell<usize>,
    /// Not 0 once CPU 0 has dropped the lock of a page table.
    pub(crate) unlocked: AtomicU64,
    /// Flushes whose task has left the CPU that issued them.
    pub(crate) handed_over: RefCell<Vec<Issued>>,
}

/// The top-level table of a space: two pages, for two halves.
const ROOT_SHIFT: u32 = 13;
/// Set in a root that is one CPU's own.
const OWN: u64 = 1 << 40;

/// Which table a root stands for.
pub(crate) const fn table_of(root: PhysAddr) -> usize {
    ((root.0 & !OWN) >> ROOT_SHIFT) as usize
}

/// True if it is one CPU's own.
pub(crate) const fn is_own(root: PhysAddr) -> bool {
    root.0 & OWN != 0
}

/// One CPU's own, instead of the `root` of the space.
pub(crate) const fn own(root: PhysAddr) -> PhysAddr {
    PhysAddr(root.0 | OWN)
}

fn zeros(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

fn protocol(storage: &Storage) -> Protocol<'_> {
    let tlb = Tlb::new(&storage.cpus, &storage.matrix, PhysAddr(0), storage.policy);
    let words = AddressSpace::set_words(storage.cpus.len());
    let space =
        |table: u64| AddressSpace::new(tlb.fresh_id(), SpaceToken(table), PhysAddr(table << ROOT_SHIFT), zeros(words));
    let spaces = (1..=storage.spaces).map(space).collect();
    Protocol { tlb, periods: GracePeriods::new(&storage.passed), spaces }
}

impl Machine {
    pub(crate) fn new(setup: Setup, cpus: usize) -> Self {
        let storage = Storage {
            cpus: (0..cpus).map(|_| CpuState::new()).collect(),
            passed: (0..cpus).map(|_| Passed::new()).collect(),
            matrix: zeros(Tlb::matrix_words(cpus)),
            spaces: setup.spaces as u64,
            policy: setup.policy,
        };
        let directories = if setup.directories == Directories::OfEachCpu { cpus } else { 0 };
        let space = |_| Table::new(setup.pages, directories);
        let tables = std::iter::once(Table::new(setup.kernel_pages, 0)).chain((0..setup.spaces).map(space));
        let tables: Vec<_> = tables.collect();
        if setup.is_joined {
            tables.iter().for_each(Table::join);
        }
        Self {
            kernel: Kernel::new(storage, protocol),
            setup,
            tables,
            cores: (0..cpus)
                .map(|_| Core::new(Features { pcid: setup.policy.tags != Tags::Off, invpcid: true }))
                .collect(),
            busy: Cell::new(cpus),
            announcements: Cell::new(0),
            interrupts: Cell::new(0),
            unlocked: AtomicU64::new(0),
            handed_over: RefCell::default(),
        }
    }

    pub(crate) fn tlb(&self) -> &Tlb<'_> {
        &self.kernel.borrow_dependent().tlb
    }

    pub(crate) fn periods(&self) -> &GracePeriods<'_> {
        &self.kernel.borrow_dependent().periods
    }

    /// The space whose pages table `table` holds.
    pub(crate) fn space(&self, table: usize) -> &AddressSpace<Vec<AtomicU64>> {
        &self.kernel.borrow_dependent().spaces[table - 1]
    }
}
