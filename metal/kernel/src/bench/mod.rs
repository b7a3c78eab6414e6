//! What single instructions and interrupts cost on this machine, timed in ring 0 on the first CPU with nothing else
//! running. Whoever boots it must know whether the machine's cycles mean anything: an emulator's do not.

mod instructions;
mod interrupts;
mod sample;

pub(crate) use interrupts::stand_by;
pub(crate) use sample::Sample;

use crate::boot::options::Options;
use crate::report;

/// Times all that this machine has; its end.
pub(crate) fn run(options: &Options) -> ! {
    instructions::time();
    interrupts::time(options.cpus);
    report::benched(options)
}
