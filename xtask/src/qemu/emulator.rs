//! Builds the kernel of this tree, and boots it once under QEMU's own emulation.

use anyhow::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tlbkit_boot::Machine;

use crate::setup;

/// How the emulator runs several CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threads {
    /// On one host thread, in turns that end where a CPU pauses, and now and then elsewhere: fast, whatever else the
    /// host does.
    InTurns,
    /// One host thread for all CPUs, and a clock that counts instructions: the same image, words and seed give the same
    /// run.
    Repeatable,
    /// On a host thread for each CPU, so really at the same time.
    Parallel,
}

impl Threads {
    /// QEMU's options.
    pub(crate) const fn accelerator(self) -> &'static [&'static str] {
        match self {
            Self::InTurns => &["-accel", "tcg,thread=single", "-cpu", "max"],
            Self::Repeatable => tlbkit_boot::REPEATABLE,
            Self::Parallel => &["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// One boot.
#[derive(Clone, Debug)]
pub(super) struct Boot {
    pub(super) cpus: u32,
    pub(super) threads: Threads,
    /// The kernel's command line, but for the number of CPUs.
    pub(super) words: String,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Ended {
    /// The kernel's last line; null if it wrote none.
    pub(super) last: Value,
    pub(super) seconds: f64,
}

impl Ended {
    /// True if the kernel says that all held.
    pub(super) fn is_fine(&self) -> bool {
        self.kind() == "result"
    }

    /// `result`, `failure`, `panic`, `usage`, or `nothing`.
    pub(super) fn kind(&self) -> &str {
        self.last["kind"].as_str().unwrap_or("nothing")
    }

    /// What the kernel says of a failure.
    pub(super) fn what(&self) -> &str {
        self.last["what"].as_str().unwrap_or("no line came in time")
    }
}

/// Builds the kernel and returns the image.
pub(super) fn build(root: &Path) -> Result<PathBuf> {
    Ok(tlbkit_boot::build(&root.join("metal/kernel"), &setup::target_dir(root).join("kernel"))?)
}

impl Boot {
    pub(super) fn new(cpus: u32, threads: Threads, words: impl Into<String>) -> Self {
        Self { cpus, threads, words: words.into() }
    }

    /// Boots `kernel` and waits for its end.
    pub(super) fn run(&self, kernel: &Path) -> Result<Ended> {
        Ok(self.run_telling(kernel)?.0)
    }

    /// Boots the kernel once, and returns every line that it wrote as well.
    pub(super) fn run_telling(&self, kernel: &Path) -> Result<(Ended, Vec<Value>)> {
        let (cpus, accelerator) = (self.cpus, self.threads.accelerator());
        let ended = Machine { kernel, command_line: &self.command_line(), cpus, accelerator }.boot()?;
        let lines = ended.lines();
        Ok((Ended { last: lines.last().cloned().unwrap_or(Value::Null), seconds: ended.seconds }, lines))
    }

    /// The kernel's whole command line.
    pub(super) fn command_line(&self) -> String {
        format!("cpus={} {}", self.cpus, self.words)
    }
}
