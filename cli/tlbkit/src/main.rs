//! The command `tlbkit`: what flush policies cost, on a simulated multiprocessor that runs the real protocol.
//!
//! From top to bottom, each folder using those below it: `verbs` (what a person types), `experiments` (the published
//! results, each with what it runs), `lab` (what verbs share), `output` (what a person sees), `published` (a published
//! result as data). Exit status: 0 everything as expected, 1 a changed verdict or a violation, 2 wrong usage, bad input
//! or an output that could not be written, 70 a fault of the simulator; of `record` and `observe` with a command, the
//! command's own; of `try` 1 as well if the change is not worth it; of `try`, `run`, `reproduce`, `check`,
//! `calibrate`, `record --light` and `sweep run` 128 and the number of a signal that stopped them.

#![warn(clippy::print_stderr)]

mod experiments;
mod lab;
mod output;
mod published;
mod verbs;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::FromArgMatches;

use lab::terminal::{Ending, Format, UNWRITTEN, note, plain};
use output::usage;
use tlbkit_sim::RunError;
use verbs::Arguments;

/// The status of a fault that is nobody's but ours, as `sysexits.h` numbers it.
const OWN_FAULT: u8 = 70;

fn main() -> ExitCode {
    // A reader of our output may stop early, as `head` does.
    sigpipe::reset();
    let arguments = match verbs::command().try_get_matches().and_then(|typed| Arguments::from_arg_matches(&typed)) {
        Ok(arguments) => arguments,
        Err(error) => return misused(&error),
    };
    let format = if arguments.json { Format::Json } else { Format::Text };
    match verbs::execute(&arguments.verb, format) {
        Ok(Ending::AsExpected) => ExitCode::SUCCESS,
        Ok(Ending::NotAsExpected) => ExitCode::from(1),
        Ok(Ending::AsCommand(status)) => ExitCode::from(status),
        Err(error) => {
            note!("tlbkit: {}", plain(&format!("{error:#}")));
            let is_ours = error.chain().filter_map(|cause| cause.downcast_ref()).any(RunError::is_of_simulator);
            ExitCode::from(if is_ours { OWN_FAULT } else { 2 })
        }
    }
}

/// Says what was typed wrongly, in a line; or gives the help that was asked for.
fn misused(error: &clap::Error) -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match usage::complaint(error, &verbs::command(), &words) {
        Some(line) => {
            note!("tlbkit: {}", plain(&line));
            ExitCode::from(2)
        }
        None => match error.print().and_then(|()| io::stdout().flush()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                note!("tlbkit: {UNWRITTEN}: {error}");
                ExitCode::from(2)
            }
        },
    }
}
