//! `tlbkit sweep`: many runs, cut into shards for as many processes or machines as there are.
//!
//! A plan is a file with a point a line. Each shard runs every N-th of them and appends a row as each is done, so a
//! shard that was killed goes on where it stopped. Rows depend on nothing but their points and what their machines are:
//! merged they are the same bytes for any N. A row names its machine's content by a fingerprint, and rows of a machine
//! that has changed since are refused.

mod fingerprint;
mod plan;
mod shard;
mod table;

use anyhow::Result;
use clap::{Args, Subcommand};

use tlbkit_output::terminal::{Ending, Format};

/// Which of the four steps.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    tlbkit sweep plan ebizzy-m --policy linux-4.14,tlbkit --set threads=1,2,4 \\\n      \
    --seed 1,2,3 > plan.jsonl\n  \
    seq 8 | xargs -P 8 -I K tlbkit sweep run plan.jsonl --shard K/8\n  \
    tlbkit sweep merge plan.jsonl plan.jsonl.*-of-8 > results.jsonl\n  tlbkit sweep table results.jsonl")]
pub(crate) struct SweepArguments {
    #[command(subcommand)]
    step: SweepStep,
}

#[derive(Subcommand)]
enum SweepStep {
    /// Every combination of the lists, a point a line, to standard output
    Plan(plan::PlanArguments),
    /// Every N-th point of a plan, those that are done already left out
    Run(shard::ShardArguments),
    /// The rows of all shards in the order of the plan, to standard output
    Merge(shard::MergeArguments),
    /// Means over seeds of what was merged, and how policies differ
    Table(table::TableArguments),
}

/// Takes the step.
pub(crate) fn execute(arguments: &SweepArguments, format: Format) -> Result<Ending> {
    match &arguments.step {
        SweepStep::Plan(arguments) => plan::write(arguments)?,
        SweepStep::Run(arguments) => return shard::run(arguments, format),
        SweepStep::Merge(arguments) => shard::merge(arguments)?,
        SweepStep::Table(arguments) => table::print(arguments, format)?,
    }
    Ok(Ending::AsExpected)
}
