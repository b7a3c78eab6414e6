//! The command `tlbkit`: what flush policies cost, on a simulated multiprocessor that runs the real protocol.
//!
//! From top to bottom, each folder using those below it: `verbs` (what a person types), `experiments` (the published
//! results, each with what it runs), `compared` (outcomes side by side), `spec` (a run, resolved), `output` (what a
//! person sees of a published result), `published` (a published result as data). Exit status: 0 everything as expected,
//! 1 a changed verdict or a violation, 2 wrong usage, bad input or an output that could not be written, 70 a fault of
//! the simulator; of `run`, `reproduce` and `check` 128 and the number of a signal that stopped them.

#![warn(clippy::print_stderr)]

mod compared;
mod experiments;
mod output;
mod published;
mod spec;
mod verbs;

use std::process::ExitCode;

use anyhow::Error;
use tlbkit_sim::RunError;

/// The status of a fault that is nobody's but ours, as `sysexits.h` numbers it.
const OWN_FAULT: u8 = 70;

fn main() -> ExitCode {
    let is_ours = |error: &Error| error.chain().filter_map(|cause| cause.downcast_ref()).any(RunError::is_of_simulator);
    tlbkit_output::command::run(verbs::execute, |error| is_ours(error).then_some(OWN_FAULT))
}
