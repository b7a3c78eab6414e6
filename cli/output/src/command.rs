//! The frame of a command: its arguments are read, its verb is done, and what came of it becomes the exit status.

use std::process::ExitCode;

use anyhow::{Error, Result};
use clap::{Arg, Command, Parser};

use crate::terminal::{Ending, plain};
use crate::{note, say};

/// Columns that help takes at most on a wide terminal.
const HELP_WIDTH: usize = 110;

/// What a person may type. A number below 0 is the value of the option before it everywhere, and told what it may be.
pub fn command<A: Parser>() -> Command {
    with_negatives(A::command().max_term_width(HELP_WIDTH))
}

fn with_negatives(command: Command) -> Command {
    let takes = |arg: &Arg| arg.get_action().takes_values() && !arg.is_positional();
    let with = |arg: Arg| if takes(&arg) { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(with).mut_subcommands(with_negatives)
}

/// Runs a command: reads its arguments, has `execute` do what they say, and gives the exit status. Wrong usage, bad
/// input and outputs that cannot be written end it with 2, and other errors with what `fault` makes of them.
#[must_use]
pub fn run<A: Parser>(
    execute: impl FnOnce(&A) -> Result<Ending>,
    fault: impl FnOnce(&Error) -> Option<u8>,
) -> ExitCode {
    // A reader of our output may stop early, as `head` does.
    sigpipe::reset();
    let command = command::<A>();
    let name = command.get_name().to_owned();
    #[cfg(feature = "pages")]
    if let Some(folder) = std::env::var_os("TLBKIT_PAGES") {
        return match crate::pages::write(command, folder.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                note!("{name}: {error:#}");
                ExitCode::from(2)
            }
        };
    }
    let arguments = match command.try_get_matches().and_then(|typed| A::from_arg_matches(&typed)) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            note!("{}", plain(error.to_string().trim_end()));
            return ExitCode::from(2);
        }
        Err(asked_for) => {
            say!("{}", asked_for.to_string().trim_end());
            return ExitCode::SUCCESS;
        }
    };
    match execute(&arguments) {
        Ok(Ending::AsExpected) => ExitCode::SUCCESS,
        Ok(Ending::NotAsExpected) => ExitCode::from(1),
        Ok(Ending::AsCommand(status)) => ExitCode::from(status),
        Err(error) => {
            note!("{name}: {}", plain(&format!("{error:#}")));
            ExitCode::from(fault(&error).unwrap_or(2))
        }
    }
}
