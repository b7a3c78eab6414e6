//! Why something could not be measured.

use std::io;
use std::path::{Path, PathBuf};

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
    /// The program `perf` is there and cannot be started.
    #[error("perf: cannot be run")]
    PerfCannotRun(#[source] io::Error),
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
    /// A text that names no change.
    #[error("{text}: {wanted}")]
    NoChange {
        /// What was asked for.
        text: String,
        /// What would be one.
        wanted: String,
    },
    /// A setting of the machine, or the journal of what is set, is out of reach.
    #[error("{path}: cannot be {what}")]
    Knob {
        /// Its file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel took a value and says another one.
    #[error("{path}: is {taken} after {wanted} was written")]
    NotTaken {
        /// The file of the setting.
        path: PathBuf,
        /// What was written.
        wanted: String,
        /// What it says.
        taken: String,
    },
    /// A line of the journal that names no setting with two values: what it meant is not put back.
    #[error("{journal}, line {line}: names no setting; set what it means by hand, and remove the file")]
    JournalLine {
        /// The journal, which stays.
        journal: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// A change of the machine without a journal to put it back from.
    #[error("the machine cannot be changed without a journal")]
    NoJournal,
    /// Two trials would change the machine at once.
    #[error("another trial is changing this machine: it holds {lock}")]
    AnotherTrial {
        /// The file that it holds.
        lock: PathBuf,
    },
    /// The command to be tried cannot be started.
    #[error("{program}: cannot be run")]
    CannotRun {
        /// What was to be started.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The command to be tried does not succeed, so its times mean nothing.
    #[error("the command fails without any change ({status}){}", said_of(.said))]
    CommandFailed {
        /// How it ended.
        status: String,
        /// The last thing that it said.
        said: String,
    },
    /// A process of a ring ended early.
    #[error("a process of the ring ended early")]
    RingBroke,
}

/// What somebody said at the end, behind a colon; nothing if that is nothing.
#[must_use]
pub fn said_of(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

impl Error {
    /// Turns the kernel's answer to `what` into an error.
    pub(crate) fn kernel<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Kernel { what, source: source.into() }
    }

    /// Why `perf` was not started.
    pub(crate) fn of_perf(answer: io::Error) -> Self {
        if answer.kind() == io::ErrorKind::NotFound { Self::NoPerf } else { Self::PerfCannotRun(answer) }
    }

    /// Turns the kernel's answer about a setting's file into an error.
    pub(crate) fn knob(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Knob { path: path.to_owned(), what, source }
    }
}
