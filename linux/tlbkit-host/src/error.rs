//! Why something could not be measured.

use std::io;

use thiserror::Error;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What stood in the way.
#[derive(Debug, Error)]
pub enum Error {
    /// The kernel refused.
    #[error("{what}")]
    Kernel {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// A file of `/proc` or `/sys` lacks what is needed.
    #[error("{path}: {wanted} is missing")]
    Missing {
        /// The file.
        path: &'static str,
        /// What it should have said.
        wanted: &'static str,
    },
    /// The program `perf` is not there.
    #[error("no program perf; run: sudo apt-get install linux-perf")]
    NoPerf,
    /// The kernel shows its tracepoints to nobody, or not to this user.
    #[error("{path} cannot be read; run: {run}")]
    NoTracepoints {
        /// What was tried.
        path: String,
        /// What would help.
        run: &'static str,
    },
    /// The kernel lets this user record nothing that concerns others.
    #[error("kernel.perf_event_paranoid = {level}, limit -1 for this user; run the same command with sudo")]
    NoRight {
        /// What the setting is.
        level: i32,
    },
    /// `perf` gave up.
    #[error("perf record: {said}")]
    PerfFailed {
        /// The last thing that it said.
        said: String,
    },
    /// A process of a ring ended early.
    #[error("a process of the ring ended early")]
    RingBroke,
}

impl Error {
    /// Turns the kernel's answer to `what` into an error.
    pub(crate) fn kernel<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Kernel { what, source: source.into() }
    }
}
