//! The verbs of the command: one verb, one file, with a folder beside it where it has parts.
//!
//! No verb imports another. What two of them share stands in `lab`.

mod blame;
mod boot;
mod calibrate;
mod check;
mod doctor;
mod list;
mod observe;
mod pages;
mod record;
mod replay;
mod reproduce;
mod run;
mod sweep;
mod trying;
mod tune;

use anyhow::Result;
use clap::{Arg, Command, CommandFactory, Parser, Subcommand};

use crate::lab::terminal::{Ending, Format};

/// What TLB flush policies cost: the tlbkit library on a simulated x86-64 multiprocessor.
#[derive(Parser)]
#[command(name = "tlbkit", version, after_help = "Start with: tlbkit reproduce")]
pub(crate) struct Arguments {
    /// JSON Lines on standard output, one object a row
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// The published results beside ours, with the error of each, and a report with plots
    Reproduce(reproduce::ReproduceArguments),
    /// One workload on one machine under several policies, side by side
    Run(run::RunArguments),
    /// Many runs in shards: plan, run, merge
    Sweep(sweep::SweepArguments),
    /// The protocol on a machine that may do all that x86-64 allows
    Check(check::CheckArguments),
    /// This machine's flushes, live
    Observe(observe::ObserveArguments),
    /// This machine's flushes and what caused them, into a file
    Record(record::RecordArguments),
    /// Who flushes, why, what, and whom it interrupts: in a trace, or live
    Blame(blame::BlameArguments),
    /// The bare-metal test kernel in QEMU, on KVM where that is usable
    Boot(boot::BootArguments),
    /// A recorded machine under other policies, beside what its own kernel counted
    Replay(replay::ReplayArguments),
    /// What to set on a recorded machine, and whether it is worth it
    Tune(tune::TuneArguments),
    /// A command with and without a change, in turn, and whether the change is worth it
    Try(trying::TryArguments),
    /// What this host costs, as a machine file
    Calibrate(calibrate::CalibrateArguments),
    /// What this machine allows, and the command for each lack
    Doctor(doctor::DoctorArguments),
    /// Manual pages and completions for shells, into a folder
    Pages(pages::PagesArguments),
    /// Machines, policies, workloads and experiments
    List(list::ListArguments),
}

/// Columns that help takes at most on a wide terminal.
const HELP_WIDTH: usize = 110;

/// What a person may type. A number below 0 is the value of the option before it everywhere, and told what it may be.
pub(crate) fn command() -> Command {
    with_negatives(Arguments::command().max_term_width(HELP_WIDTH))
}

fn with_negatives(command: Command) -> Command {
    let takes = |arg: &Arg| arg.get_action().takes_values() && !arg.is_positional();
    let with = |arg: Arg| if takes(&arg) { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(with).mut_subcommands(with_negatives)
}

/// Does what `verb` says. An error is wrong usage or bad input.
pub(crate) fn execute(verb: &Verb, format: Format) -> Result<Ending> {
    match verb {
        Verb::Reproduce(arguments) => reproduce::execute(arguments, format),
        Verb::Run(arguments) => run::execute(arguments, format),
        Verb::Sweep(arguments) => sweep::execute(arguments, format),
        Verb::Check(arguments) => check::execute(arguments, format),
        Verb::Observe(arguments) => observe::execute(arguments, format),
        Verb::Record(arguments) => record::execute(arguments, format),
        Verb::Blame(arguments) => blame::execute(arguments, format),
        Verb::Boot(arguments) => boot::execute(arguments, format),
        Verb::Replay(arguments) => replay::execute(arguments, format),
        Verb::Tune(arguments) => tune::execute(arguments, format),
        Verb::Try(arguments) => trying::execute(arguments, format),
        Verb::Calibrate(arguments) => calibrate::execute(arguments, format),
        Verb::Doctor(arguments) => doctor::execute(arguments, format),
        Verb::Pages(arguments) => pages::execute(arguments, Arguments::command(), format),
        Verb::List(arguments) => list::execute(arguments, format),
    }
}
