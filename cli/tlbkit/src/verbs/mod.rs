//! The verbs of the command: one verb, one file, with a folder beside it where it has parts.
//!
//! No verb imports another. What two of them share stands in `spec` and `compared`.

mod check;
mod designs;
mod list;
mod reproduce;
mod run;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tlbkit_output::terminal::{Ending, Format};

/// What TLB flush policies cost: the tlbkit library on a simulated x86-64 multiprocessor.
#[derive(Parser)]
#[command(name = "tlbkit", version, after_help = "Start with: tlbkit reproduce")]
pub(crate) struct Arguments {
    /// JSON Lines on standard output, one object a row
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The published results beside ours, with the error of each, and a report with plots
    Reproduce(reproduce::ReproduceArguments),
    /// One workload, or several, under several policies, side by side
    Run(run::RunArguments),
    /// Every published design on every workload, beside Linux: one table, one picture
    Designs(designs::DesignsArguments),
    /// The protocol on a machine that may do all that x86-64 allows
    Check(check::CheckArguments),
    /// Machines, policies, workloads and experiments
    List(list::ListArguments),
}

/// Does what the arguments say. An error is wrong usage or bad input.
pub(crate) fn execute(arguments: &Arguments) -> Result<Ending> {
    let format = if arguments.json { Format::Json } else { Format::Text };
    match &arguments.verb {
        Verb::Reproduce(arguments) => reproduce::execute(arguments, format),
        Verb::Run(arguments) => run::execute(arguments, format),
        Verb::Designs(arguments) => designs::execute(arguments, format),
        Verb::Check(arguments) => check::execute(arguments, format),
        Verb::List(arguments) => list::execute(arguments, format),
    }
}
