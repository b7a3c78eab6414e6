//! Why a run ends without an outcome.

use thiserror::Error;

use tlbkit_machine::MOST_CPUS;

/// Why a run gave no outcome.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RunError {
    /// A program, or the kernel that read a file for it, found a page to hold something else than it must.
    #[error("cpu{cpu}: the page at {at:#x} holds {found:#x} and not {expected:#x}: a flush was lost")]
    WrongValue {
        /// Where it was read: at a virtual address, or at a physical one through the kernel's map of all memory.
        at: u64,
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
        /// How many faults in a row.
        faults: u32,
        /// On which CPU.
        cpu: usize,
    },
    /// Programs go on long after the end of the run: one of them does not see that it is over.
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
    /// Programs that count rounds go on without any progress: one of them waits for a value that it will never see.
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
    /// The simulator counted something twice, or not at all: a fault of the simulator itself.
    #[error("the accounts do not balance{}: {of}: {one} and {other}", on_cpu(*.cpu))]
    Unbalanced {
        /// What was counted in two places.
        of: &'static str,
        /// On which CPU, if on one.
        cpu: Option<usize>,
        /// The first sum.
        one: u64,
        /// The second.
        other: u64,
    },
    /// The host has no room for another task's stack.
    #[error("no stack for a task: {0}")]
    Stack(String),
    /// A machine of no CPUs, or of more than there may be.
    #[error("{0} CPUs: must be 1 to {MOST_CPUS}")]
    Cpus(usize),
}

impl RunError {
    /// Whether the simulator, or the protocol in it, is wrong, and not a machine, a policy or a parameter.
    #[must_use]
    pub const fn is_of_simulator(&self) -> bool {
        match self {
            Self::WrongValue { .. } | Self::BadAccess { .. } | Self::FaultLoop { .. } => true,
            Self::Stuck { .. } | Self::Unbalanced { .. } => true,
            Self::Overrun { .. } | Self::Quiet { .. } | Self::Kernel(_) | Self::Stack(_) | Self::Cpus(_) => false,
        }
    }
}

fn on_cpu(cpu: Option<usize>) -> String {
    cpu.map_or_else(String::new, |cpu| format!(" on cpu{cpu}"))
}
