//! The machine on which a trace is priced: a built-in one, or a file.

use std::path::Path;

use anyhow::{Result, ensure};
use tlbkit_machine::Machine;
use tlbkit_output::nearest::unknown;
use tlbkit_output::note;
use tlbkit_output::terminal::plain;

/// A built-in machine, or a file of one.
pub(crate) fn machine(name: &str) -> Result<Machine> {
    let is_there = Machine::text(name).is_some() || Path::new(name).exists();
    ensure!(is_there, "{}, and no such file is there", unknown("machine", name, Machine::names(), "machines"));
    Ok(Machine::named(name)?)
}

/// The file that a machine's name leads to; none if it is a built-in one.
pub(crate) fn own_file(name: &str) -> Option<&Path> {
    Machine::text(name).is_none().then_some(Path::new(name))
}

/// Prints the caution of a machine's file to standard error, if it has one: no answer shows it.
pub(crate) fn say_caution(machine: &Machine) {
    if let Some(caution) = &machine.caution {
        let said = format!("machine {} says of itself: {caution}", machine.name);
        note!("tlbscope: {}", plain(&said.replace('\n', "\\n")));
    }
}
