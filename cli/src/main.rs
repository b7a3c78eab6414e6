//! The command `tlbkit`: what flush policies cost, on a simulated multiprocessor that runs the real protocol.
//!
//! Exit status: 0 fine, 1 a result out of its band or a violation, 2 wrong usage or bad input.

mod experiment;
mod figure;
mod output;
mod progress;
mod reproduce;
mod settings;
mod verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What TLB flush policies cost: the tlbkit library on a simulated x86-64 multiprocessor.
#[derive(Parser)]
#[command(name = "tlbkit", version, after_help = "Start with: tlbkit reproduce")]
struct Arguments {
    /// JSON Lines on standard output, one object a row
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The published results beside ours, with the error of each, and a report with plots
    Reproduce(verbs::reproduce::Options),
    /// One workload on one machine under several policies, side by side
    Run(verbs::run::Options),
    /// Many runs in shards: plan, run, merge
    Sweep(verbs::sweep::Options),
    /// The protocol on a machine that may do all that x86-64 allows
    Check(verbs::check::Options),
    /// This machine's flushes, live
    Observe(verbs::observe::Options),
    /// This machine's flushes and what caused them, into a file
    Record(verbs::record::Options),
    /// The bare-metal test kernel in QEMU, on KVM where that is usable
    Boot(verbs::boot::Options),
    /// A recorded machine under other policies, beside what its own kernel counted
    Replay(verbs::replay::Options),
    /// What to set on a recorded machine, and whether it is worth it
    Tune(verbs::tune::Options),
    /// What this host costs, as a machine file
    Calibrate(verbs::calibrate::Options),
    /// Machines, policies, workloads and experiments
    List(verbs::list::Options),
}

/// How a verb ended, when it did not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Fine,
    OutOfBand,
}

/// What is written to standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

fn main() -> ExitCode {
    // Whoever reads our output may stop early, as `head` does.
    sigpipe::reset();
    let arguments = Arguments::parse();
    let format = if arguments.json { Format::Json } else { Format::Text };
    let ending = match arguments.verb {
        Verb::Reproduce(options) => verbs::reproduce::execute(&options, format),
        Verb::Run(options) => verbs::run::execute(&options, format),
        Verb::Sweep(options) => verbs::sweep::execute(&options, format),
        Verb::Check(options) => verbs::check::execute(&options, format),
        Verb::Observe(options) => verbs::observe::execute(&options, format),
        Verb::Record(options) => verbs::record::execute(&options, format),
        Verb::Boot(options) => verbs::boot::execute(&options, format),
        Verb::Replay(options) => verbs::replay::execute(&options, format),
        Verb::Tune(options) => verbs::tune::execute(&options, format),
        Verb::Calibrate(options) => verbs::calibrate::execute(&options, format),
        Verb::List(options) => verbs::list::execute(&options, format),
    };
    match ending {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::OutOfBand) => ExitCode::from(1),
        Err(error) => {
            eprintln!("tlbkit: {error:#}");
            ExitCode::from(2)
        }
    }
}
