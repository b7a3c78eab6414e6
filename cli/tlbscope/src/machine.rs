//! The machine that prices a trace: a built-in one, or a file; and the folder of the machine that is looked at.

use std::path::Path;

use anyhow::{Result, ensure};
use tlbkit_machine::Machine;
use tlbkit_output::nearest::unknown;

/// A built-in machine, or a file of one.
pub(crate) fn machine(name: &str) -> Result<Machine> {
    let is_there = Machine::text(name).is_some() || Path::new(name).exists();
    ensure!(is_there, "{}, and no such file is there", unknown("machine", name, Machine::names(), "machines"));
    Ok(Machine::named(name)?)
}

/// Refuses a root that is no folder.
pub(crate) fn check_root(root: &Path) -> Result<()> {
    let root_text = root.display();
    ensure!(root.is_dir(), "--root {root_text}: no such folder; want the one with a machine's sys, proc and run");
    Ok(())
}
