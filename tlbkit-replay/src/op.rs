//! What a kernel had to do, in the order of the trace: the input of every replay.

use tlbkit_trace::{Name, Syscall};

/// An address space of the trace, numbered in the order in which they appear.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Space(pub u32);

/// One step on one CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Op {
    /// Nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// Where.
    pub cpu: u32,
    /// Name of the thread that caused it.
    pub comm: Name,
    /// What had to be done.
    pub step: Step,
}

/// What had to be done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// A thread of `space` runs from here on.
    Run {
        /// Its space.
        space: Space,
    },
    /// The idle thread or a kernel thread runs.
    Idle,
    /// A page of the running space was used for the first time, or again.
    Touch {
        /// Number of the base page.
        page: u64,
    },
    /// Translations of `space` were taken away by a thread of it on this CPU.
    Revoke {
        /// Whose.
        space: Space,
        /// What asked for it.
        cause: Cause,
        /// Number of the first base page that was mapped in the range.
        page: u64,
        /// Base pages from there to the last that was mapped; `u64::MAX` for the whole space.
        pages: u64,
        /// Page tables went too.
        frees_tables: bool,
    },
    /// The last thread of `space`, which ran here, is gone; `is_left` if this CPU went on with another space before
    /// (exec), else it holds the dead one lazily (exit).
    Retire {
        /// Whose.
        space: Space,
        /// It was left before.
        cause: Cause,
    },
}

/// What asked for a revocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// A system call.
    Call(Syscall),
    /// A store to a page that was shared until then.
    CopyOnWrite,
}

impl Cause {
    /// Short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Call(call) => call.label(),
            Self::CopyOnWrite => "copy on write",
        }
    }
}
