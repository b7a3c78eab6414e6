//! A process that puts the machine back if this program is killed by a signal that it cannot catch.
//!
//! The guardian is this program once more, in a process group of its own. It waits for the end of a pipe whose other
//! end only this process holds. When this process ends, for whatever reason, the guardian looks for a journal: there is
//! none if all is well.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// The option that makes the verb `try` wait for the end of its input first.
pub(crate) const AFTER_INPUT: &str = "--after-input";

/// The guardian, which ends when this value is dropped.
pub(super) struct Guardian(Child);

impl Guardian {
    pub(super) fn start(root: &Path) -> Result<Self> {
        let program = env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.args(["try", "--restore", AFTER_INPUT, "--root"]).arg(root).process_group(0);
        // A terminal that is gone cannot be written to, and what it would say nobody reads.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).context("starting who puts the machine back")
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // One that was killed has nothing to say.
        let _ = self.0.wait();
    }
}
