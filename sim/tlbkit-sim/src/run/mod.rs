//! One run: a machine, a policy, a workload and a seed give an outcome.
//!
//! The same four give the same outcome, bit by bit, on any host.

pub(crate) mod fault_injection;
pub(crate) mod insight;
pub(crate) mod keep;
mod outcome;
pub(crate) mod samples;
mod sizes;
pub(crate) mod stage;

use thiserror::Error;
use tlbkit::Policy;
use tlbkit_workloads::Workload;

use crate::kernel::phys;
use crate::machine::{MOST_CPUS, Machine};

pub use fault_injection::Fault;
pub use insight::{FlushCounters, Needed};
pub use outcome::{Outcome, ReasonRow, TlbCounters};
pub use phys::Pressure;
pub use samples::Sample;
pub use sizes::SizeRow;

/// What to run.
#[derive(Clone, Debug)]
pub struct Run<'m> {
    /// The machine.
    pub machine: &'m Machine,
    /// The protocol's policy.
    pub policy: Policy,
    /// What runs on it.
    pub workload: Workload,
    /// CPUs; the machine file's number is only its default.
    pub cpus: usize,
    /// Where random numbers come from.
    pub seed: u64,
    /// After so many cycles [`is_over`](tlbkit_workloads::Os::is_over) is true, and long after that the run is given
    /// up; none for workloads that [end by themselves](Workload::ends_by_itself).
    pub limit_cycles: Option<u64>,
    /// How often the score is noted; never if it is none.
    pub sample_cycles: Option<u64>,
    /// Whether memory is short.
    pub pressure: Pressure,
    /// What the machine loses: nothing, but in tests.
    pub fault: Fault,
}

/// Why a run gave no outcome.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RunError {
    /// A program found a page to hold something else than it must.
    #[error("cpu{cpu}: the page at {va:#x} holds {found:#x} and not {expected:#x}: a flush was lost")]
    WrongValue {
        /// The page.
        va: u64,
        /// What it holds.
        found: u64,
        /// What it must hold.
        expected: u64,
        /// On which CPU it was read.
        cpu: usize,
    },
    /// A program touched an address that it has not mapped.
    #[error("access to {va:#x}, where nothing is mapped")]
    BadAccess {
        /// The address.
        va: u64,
    },
    /// A program faults at one address for ever.
    #[error("cpu{cpu}: {faults} faults in a row at {va:#x}, each said to be repaired")]
    FaultLoop {
        /// The address.
        va: u64,
        /// How many.
        faults: u32,
        /// On which CPU.
        cpu: usize,
    },
    /// Programs go on long after the end of the run: somebody does not see that it is over.
    #[error(
        "{tasks} tasks still run at cycle {at_cycles} of a run of {limit_cycles}: give them more time, or a number of \
         rounds; if that does not help, one of them does not see that it is over"
    )]
    Overrun {
        /// Tasks that have not ended.
        tasks: usize,
        /// When the run was given up.
        at_cycles: u64,
        /// When it was over.
        limit_cycles: u64,
    },
    /// Programs that count rounds go on and nothing comes of it: somebody waits for what it will never see.
    #[error(
        "{tasks} tasks still run at cycle {at_cycles} and none has called the kernel, faulted or ended since cycle \
         {since_cycles}: a flush was lost; or let them compute less between two calls"
    )]
    Quiet {
        /// Tasks that have not ended.
        tasks: usize,
        /// When the run was given up.
        at_cycles: u64,
        /// When the last of these things happened.
        since_cycles: u64,
    },
    /// The kernel could not do what a program asked.
    #[error("the simulated kernel gave up: {0}")]
    Kernel(String),
    /// Every CPU waits for another.
    #[error("nothing can happen any more with {tasks} tasks left: {cpus}")]
    Stuck {
        /// Tasks that have not ended.
        tasks: usize,
        /// What some CPUs do.
        cpus: String,
    },
    /// The host has no room for another task's stack.
    #[error("no stack for a task: {0}")]
    Stack(String),
    /// A machine of no CPUs, or of more than there may be.
    #[error("{0} CPUs: must be 1 to {MOST_CPUS}")]
    Cpus(usize),
}

impl<'m> Run<'m> {
    /// A run on all CPUs of the machine, seed 1, without a limit.
    #[must_use]
    pub fn new(machine: &'m Machine, policy: Policy, workload: Workload) -> Self {
        Self {
            machine,
            policy,
            workload,
            cpus: machine.system.cpus.count(),
            seed: 1,
            limit_cycles: None,
            sample_cycles: None,
            pressure: Pressure::None,
            fault: Fault::None,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// If a program found a wrong value, the kernel gave up, or nothing moves any more.
    pub fn execute(&self) -> Result<Outcome, RunError> {
        if !(1..=MOST_CPUS).contains(&self.cpus) {
            return Err(RunError::Cpus(self.cpus));
        }
        stage::play(self)
    }
}
