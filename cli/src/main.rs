//! The command `tlbkit`: what flush policies cost, on a simulated multiprocessor that runs the real protocol.
//!
//! From top to bottom, each folder using those below it: `verbs` (what a person types), `experiments` (the published
//! results, each with what it runs), `lab` (what verbs share), `output` (what a person sees), `published` (a published
//! result as data). Exit status: 0 everything as expected, 1 a changed verdict, a violation or an output that could not
//! be written, 2 wrong usage or bad input; of `record` and `observe` with a command, the command's own; of `try`
//! 1 as well if the change is not worth it, and 128 and the number of a signal that stopped it.

mod experiments;
mod lab;
mod output;
mod published;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use lab::terminal::{Ending, Format};
use verbs::Arguments;

fn main() -> ExitCode {
    // Whoever reads our output may stop early, as `head` does.
    sigpipe::reset();
    let arguments = Arguments::parse();
    let format = if arguments.json { Format::Json } else { Format::Text };
    match verbs::execute(&arguments.verb, format) {
        Ok(Ending::AsExpected) => ExitCode::SUCCESS,
        Ok(Ending::NotAsExpected) => ExitCode::from(1),
        Ok(Ending::AsCommand(status)) => ExitCode::from(status),
        Err(error) => {
            eprintln!("tlbkit: {error:#}");
            ExitCode::from(2)
        }
    }
}
