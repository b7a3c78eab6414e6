//! Every waiter is served (INV-7): no deadlock, no livelock.

use super::story::finding;
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::core::Progress;

/// `what` has happened, and this is why: the CPUs that are in a call, and which CPU each waits for.
pub(super) fn stuck(machine: &Machine, what: &str) -> Finding {
    let mut text = what.to_owned();
    for (cpu, core) in machine.cpus.iter().enumerate().filter(|(_, core)| core.progress == Progress::Busy) {
        let name = machine.ops[core.op as usize].name;
        text += &match core.waits_for {
            Some(late) => format!("; CPU {cpu} in {name} waits for CPU {late}"),
            None => format!("; CPU {cpu} is in {name}"),
        };
    }
    let stuck = machine.cpus.iter().position(|core| core.progress == Progress::Busy).unwrap_or(machine.current);
    finding(machine, Oracle::Progress, stuck, text)
}
