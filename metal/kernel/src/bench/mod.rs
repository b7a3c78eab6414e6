//! What single instructions and interrupts cost on this machine, timed in ring 0 on the first CPU with nothing else
//! running. Whoever boots it must know whether the machine's cycles mean anything: an emulator's do not.

mod instructions;
mod interrupts;
mod sample;

use core::fmt::Write;

pub(crate) use interrupts::stand_by;

use crate::arch::exit::Ending;
use crate::command_line::CommandLine;
use crate::counters::{self, Counter};
use crate::{machine, report};

/// Times all that this machine has; then tells how many interrupts that took, and ends the machine.
pub(crate) fn run(line: &CommandLine) -> ! {
    instructions::time();
    interrupts::time(line.cpus);
    let (features, cpus) = (machine::features(), line.cpus);
    let [sent, received] = [Counter::IpisSent, Counter::IpisReceived].map(counters::sum);
    report::last_line(Ending::Fine, |port| {
        write!(port, r#"{{"kind":"result","cpus":{cpus},"pcid":{},"invpcid":{},"#, features.pcid, features.invpcid)?;
        write!(port, r#""ipis_sent":{sent},"ipis_received":{received}}}"#)
    })
}
