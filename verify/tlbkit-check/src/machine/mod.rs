//! The adversarial machine: it may do all that x86-64 allows, at any time, and nothing else.
//!
//! | file | what |
//! |---|---|
//! | `memory` | frames, tables, epochs |
//! | `core` | one CPU |
//! | `tlb`, `walk` | what a CPU may have cached |
//! | `instructions` | what invalidates it, and what faults |
//! | `errata` | hardware that does less |
//! | `buffer`, `store`, `touch` | TSO, and what programs read and write |
//! | `action`, `steps` | what can happen next |
//! | `state` | a digest of all of it |
//! | `observation` | what is reported to the monitor |
//! | `operation`, `ops` | which call of the kernel changes the tables, and what its return promises |
//! | `values` | what each page must hold |
//! | `fiber`, `world`, `observer` | the protocol's own code, run in direct style, stopped at each shared access |
//! | `words` | the words that CPUs share, by address |
//! | `port`, `bus` | the protocol's interface to a CPU and the page tables' to memory |

pub(crate) mod action;
pub(crate) mod buffer;
pub(crate) mod bus;
pub(crate) mod core;
pub(crate) mod errata;
pub(crate) mod fiber;
pub(crate) mod guest;
pub(crate) mod instructions;
pub(crate) mod issued;
pub(crate) mod memory;
pub(crate) mod observation;
pub(crate) mod observer;
pub(crate) mod operation;
pub(crate) mod ops;
pub(crate) mod port;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod store;
pub(crate) mod tlb;
pub(crate) mod touch;
pub(crate) mod values;
pub(crate) mod walk;
pub(crate) mod words;
pub(crate) mod world;

use std::num::NonZeroU32;

use crate::finding::Finding;
use crate::schedule::Chooser;
use crate::timeline::{LineKind, Log};
use action::Action;
use core::Core;
use errata::Errata;
use guest::Host;
use memory::{FrameName, Memory};
use observation::Observation;
use operation::Operation;
use tlb::Named;
use tlbkit::{Features, Isolation, KernelFlushes, Late};
use tlbkit_arch::{Invalidation, Rights};
use values::Values;
use words::Words;

/// Looks for what must never be. The machine knows nothing else of it.
pub(crate) trait Monitor {
    /// What is wrong with `what`, which happens on `machine` now.
    fn observe(&self, machine: &Machine, what: &Observation<'_>) -> Option<Finding>;
}

/// CPUs, memory, and the chooser that decides what happens next.
pub(crate) struct Machine {
    pub(crate) memory: Memory,
    pub(crate) cpus: Vec<Core>,
    pub(crate) ops: Vec<Operation>,
    /// Top-level tables of one CPU each, with that which their space was made with.
    pub(crate) roots: Vec<(FrameName, FrameName)>,
    pub(crate) values: Values,
    /// Pages that walkers look at: those that the program uses.
    pub(crate) watched: Vec<u64>,
    /// Entries whose A bit a walk has found clear.
    unaccessed: Vec<u64>,
    /// Walks set the A bit of an entry before they cache anything of it, as Intel's manual has it. A kernel that does
    /// not rely on that is not given it: its CPUs cache at once, and set the bit later.
    pub(crate) marks_first: bool,
    pub(crate) features: Features,
    pub(crate) errata: Errata,
    /// The most pages that one INVLPGB takes, if the CPUs have it.
    pub(crate) broadcast_pages: Option<NonZeroU32>,
    /// INVLPGBs on their way, each by its number.
    broadcasts: Vec<Option<OnItsWay>>,
    pub(crate) late: Late,
    pub(crate) patience_turns: u32,
    /// Pages that a load of a file maps around it.
    pub(crate) fault_around: u64,
    pub(crate) host: Host,
    /// Preemptions and non-maskable interrupts so far.
    unplanned: u32,
    /// When the kernel's flushes reach a CPU that is not to be disturbed.
    pub(crate) kernel_flushes: KernelFlushes,
    /// Whether each space has a table for user mode beside the kernel's.
    pub(crate) isolation: Isolation,
    /// The CPU that executes.
    pub(crate) current: usize,
    /// What the scheduler has granted and nobody has taken yet.
    granted: Option<Action>,
    pub(crate) chooser: Box<dyn Chooser>,
    /// Steps so far.
    pub(crate) step: u64,
    step_limit: u64,
    /// Changes of shared memory so far: what a spinning CPU waits for.
    pub(crate) changes: u64,
    /// Rounds in which nobody could do anything but look again.
    idle_rounds: u32,
    interrupts_sent: u64,
    /// Set while steps are scheduled: not while the machine is set up.
    pub(crate) is_live: bool,
    monitor: Box<dyn Monitor>,
    pub(crate) finding: Option<Finding>,
    pub(crate) log: Log,
    /// What was chosen wherever there was a choice.
    pub(crate) choices: Vec<u8>,
    /// Shared words, numbered for digests.
    pub(crate) words: Words,
    /// Scratch of the walker and of the scheduler.
    reached: Vec<Reached>,
    actions: Vec<Action>,
}

/// An INVLPGB that no TLBSYNC of its CPU has followed yet.
#[derive(Clone, Copy)]
struct OnItsWay {
    cpu: usize,
    what: Invalidation,
}

/// A table that a walk has reached, with the permissions so far.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    pub(super) table: FrameName,
    pub(super) rights: Rights,
    pub(super) fetched: u64,
    pub(super) named: Named,
}

/// What a machine is made of.
#[derive(Clone, Copy, Debug)]
pub struct MachineConfig {
    /// CPUs, at most 64.
    pub cpus: usize,
    /// What each can do.
    pub features: Features,
    /// What each fails to do.
    pub errata: Errata,
    /// The most pages that one INVLPGB takes, if the CPUs have it.
    pub broadcast_pages: Option<NonZeroU32>,
    /// What a kernel does about CPUs that do not answer in time.
    pub late: Late,
    /// Rounds of waiting after which it looks which CPU is late.
    pub patience_turns: u32,
    /// Steps after which a run is taken for one that never ends.
    pub step_limit: u64,
}

impl Default for MachineConfig {
    fn default() -> Self {
        let features = Features { pcid: true, invpcid: true };
        let (errata, late) = (Errata::NONE, Late::Wait);
        Self { cpus: 4, features, errata, broadcast_pages: None, late, patience_turns: 3, step_limit: 1_000_000 }
    }
}

impl Machine {
    pub(crate) fn new(
        config: &MachineConfig,
        isolation: Isolation,
        monitor: Box<dyn Monitor>,
        chooser: Box<dyn Chooser>,
        log: Log,
    ) -> Self {
        let nothing = FrameName { at: 0, epoch: 0 };
        Self {
            memory: Memory::new(),
            cpus: (0..config.cpus).map(|_| Core::new(nothing)).collect(),
            ops: vec![Operation::BOOT],
            roots: Vec::new(),
            values: Values::default(),
            watched: Vec::new(),
            unaccessed: Vec::new(),
            marks_first: false,
            features: config.features,
            errata: config.errata,
            broadcast_pages: config.broadcast_pages,
            broadcasts: Vec::new(),
            late: config.late,
            patience_turns: config.patience_turns,
            fault_around: 1,
            host: Host::None,
            unplanned: 0,
            kernel_flushes: KernelFlushes::AtOnce,
            isolation,
            current: 0,
            granted: None,
            chooser,
            step: 0,
            step_limit: config.step_limit,
            changes: 0,
            idle_rounds: 0,
            interrupts_sent: 0,
            is_live: false,
            monitor,
            finding: None,
            log,
            choices: Vec::new(),
            words: Words::default(),
            reached: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Reports `what` to the monitor, unless it has found something already: its first finding ends the run.
    pub(crate) fn report(&mut self, what: &Observation<'_>) {
        if self.finding.is_none() {
            self.finding = self.monitor.observe(self, what);
        }
    }

    /// A line of the log: something that `cpu` does in this step.
    pub(crate) fn log(&mut self, cpu: usize, text: impl FnOnce() -> String) {
        self.log.add(self.step, cpu, LineKind::Step, text);
    }
}
