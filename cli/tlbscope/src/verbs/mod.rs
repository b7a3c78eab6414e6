//! The verbs of the command: one verb, one file, with a folder beside it where it has parts. No verb imports another.

mod calibrate;
mod doctor;
mod explain;
mod record;
mod replay;
mod top;
mod trying;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tlbkit_output::terminal::{Ending, Format};

/// Who flushes TLBs on this Linux machine, why, what it costs, and which setting helps.
#[derive(Parser)]
#[command(name = "tlbscope", version, after_help = "Start with: tlbscope doctor")]
pub(crate) struct Arguments {
    /// JSON Lines on standard output, one object a row
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// What this machine allows, and the command for each lack
    Doctor(doctor::DoctorArguments),
    /// This machine's flushes, live
    Top(top::TopArguments),
    /// This machine's flushes and what caused them, into a file
    Record(record::RecordArguments),
    /// What the TLB and what feeds it cost a program, why, and what to do: from a recording, or live
    Explain(explain::ExplainArguments),
    /// A recorded machine under other policies, beside what its own kernel counted
    Replay(replay::ReplayArguments),
    /// A command with and without a change, in turn, and whether the change is worth it
    Try(trying::TryArguments),
    /// What this host costs, as a machine file
    Calibrate(calibrate::CalibrateArguments),
}

/// Does what the arguments say. An error is wrong usage or bad input.
pub(crate) fn execute(arguments: &Arguments) -> Result<Ending> {
    let format = if arguments.json { Format::Json } else { Format::Text };
    match &arguments.verb {
        Verb::Doctor(arguments) => doctor::execute(arguments, format),
        Verb::Top(arguments) => top::execute(arguments, format),
        Verb::Record(arguments) => record::execute(arguments, format),
        Verb::Explain(arguments) => explain::execute(arguments, format),
        Verb::Replay(arguments) => replay::execute(arguments, format),
        Verb::Try(arguments) => trying::execute(arguments, format),
        Verb::Calibrate(arguments) => calibrate::execute(arguments, format),
    }
}
