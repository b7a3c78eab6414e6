//! The machine that loom explores: what its CPUs share, and the run of one program on each.

use std::cell::Cell;
use std::rc::Rc;

use loom::thread;
use self_cell::self_cell;
use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, Compare, CpuSetUpkeep, CpuState, Features, Foreign, History, Isolation, Late, Lazy, LocalFlush,
    PhysAddr, Policy, RangeRule, SpaceToken, TableFree, Tags, Tlb, UserFlush,
};

use crate::core::Core;
use crate::cpu::Cpu;
use crate::memory::{KERNEL, Table};

/// The policy that the tests vary: nothing is written at a switch but what the handshakes need.
pub(crate) const POLICY: Policy = Policy {
    tags: Tags::RoundRobin(2),
    lazy: Lazy::SkipUnlessTablesFreed,
    cpu_set: CpuSetUpkeep::Trimmed { every: 0 },
    range: RangeRule::Ceiling { pages: 33, compare: Compare::Above },
    isolation: Isolation::Off,
    user_flush: UserFlush::Invpcid,
    local_flush: LocalFlush::WhileRemote,
    history: History::NONE,
};

/// What a test runs on.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) policy: Policy,
    pub(crate) spaces: usize,
    pub(crate) pages: usize,
    pub(crate) kernel_pages: usize,
    /// What a CPU does at each turn of waiting about those that it waits for.
    pub(crate) late: Late,
    /// Most switches, in one execution, away from a CPU that could go on: what bounds the exploration.
    pub(crate) preemptions: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self { policy: POLICY, spaces: 1, pages: 1, kernel_pages: 0, late: Late::Wait, preemptions: 3 }
    }
}

/// The memory that the kernel supplies.
struct Storage {
    cpus: Vec<CpuState>,
    matrix: Vec<AtomicU64>,
    sets: Vec<AtomicU64>,
    policy: Policy,
}

/// The protocol's objects in it.
struct Protocol<'k> {
    tlb: Tlb<'k>,
    spaces: Vec<AddressSpace<'k>>,
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
}

/// The top-level table of a space: two pages, for two halves.
const ROOT_SHIFT: u32 = 13;

/// Which table a root stands for.
pub(crate) const fn table_of(root: PhysAddr) -> usize {
    (root.0 >> ROOT_SHIFT) as usize
}

fn zeros(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

fn protocol<'k>(storage: &'k Storage) -> Protocol<'k> {
    let tlb = Tlb::new(&storage.cpus, &storage.matrix, PhysAddr(0), storage.policy);
    let space = |(n, set): (usize, &'k [AtomicU64])| {
        let table = n as u64 + 1;
        AddressSpace::new(tlb.fresh_id(), SpaceToken(table), PhysAddr(table << ROOT_SHIFT), set)
    };
    let words = AddressSpace::set_words(storage.cpus.len());
    let spaces = storage.sets.chunks(words).enumerate().map(space).collect();
    Protocol { tlb, spaces }
}

impl Machine {
    fn new(setup: Setup, cpus: usize) -> Self {
        let storage = Storage {
            cpus: (0..cpus).map(|_| CpuState::new()).collect(),
            matrix: zeros(Tlb::matrix_words(cpus)),
            sets: zeros(setup.spaces * AddressSpace::set_words(cpus)),
            policy: setup.policy,
        };
        let tables = (0..=setup.spaces).map(|n| Table::new(if n == KERNEL { setup.kernel_pages } else { setup.pages }));
        Self {
            kernel: Kernel::new(storage, protocol),
            setup,
            tables: tables.collect(),
            cores: (0..cpus).map(|_| Core::new(Features { pcid: true, invpcid: true })).collect(),
            busy: Cell::new(cpus),
            announcements: Cell::new(0),
        }
    }

    pub(crate) fn tlb(&self) -> &Tlb<'_> {
        &self.kernel.borrow_dependent().tlb
    }

    /// The space whose pages table `table` holds.
    pub(crate) fn space(&self, table: usize) -> &AddressSpace<'_> {
        &self.kernel.borrow_dependent().spaces[table - 1]
    }
}

/// Explores the executions of `programs`, the nth on CPU n, all at once, after `prepare` has run alone.
pub(crate) fn check<const N: usize>(setup: Setup, prepare: fn(&[Cpu; N]), programs: [fn(&Cpu); N]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(setup.preemptions));
    model.max_branches = 20_000;
    model.check(move || run(setup, prepare, programs));
}

fn run<const N: usize>(setup: Setup, prepare: fn(&[Cpu; N]), programs: [fn(&Cpu); N]) {
    let machine = Rc::new(Machine::new(setup, N));
    let cpus: [Cpu; N] = std::array::from_fn(|n| Cpu::new(Rc::clone(&machine), n));
    cpus.iter().for_each(Cpu::bring_up);
    prepare(&cpus);
    let mut jobs = cpus.into_iter().zip(programs);
    let first = jobs.next();
    let work = |(cpu, program): (Cpu, fn(&Cpu))| {
        program(&cpu);
        cpu.rest();
    };
    let others: Vec<_> = jobs.map(|job| thread::spawn(move || work(job))).collect();
    first.into_iter().for_each(work);
    for other in others {
        assert!(other.join().is_ok(), "a CPU's program panicked");
    }
}
