//! `tlbscope replay`: what a recorded Linux machine did, under other policies.

mod quantity;
mod subject;
mod text;
mod why;

use anyhow::{Context, Result};
use clap::Args;
use tlbkit_output::fitting::fitting;
use tlbkit_output::policy;
use tlbkit_output::say;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_replay::replay;

use quantity::PolicyTally;
use subject::SubjectArguments;

/// What to replay, and how.
#[derive(Args)]
#[command(after_help = "Example:\n  tlbscope replay slow.tlbtrace --policy linux-6.18:ceiling=0")]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    subject: SubjectArguments,
    /// Policies: PRESET[:KEY=VALUE[+KEY=VALUE...]], separated by commas; see `tlbkit list policies` and `list settings`
    #[arg(long, value_delimiter = ',', value_parser = policy::trimmed, default_value = "linux-4.14,tlbkit")]
    policy: Vec<String>,
    /// Every row as well: all counts, why a row disagrees with the recording, and who costs most
    #[arg(long)]
    full: bool,
}

/// Replays it.
pub(crate) fn execute(arguments: &ReplayArguments, format: Format) -> Result<Ending> {
    let ReplayArguments { subject, policy: others, full } = arguments;
    // The recording kernel's first: what the others are compared with, and what says how far to trust them.
    let (mut names, mut policies) = (Vec::new(), Vec::new());
    for name in std::iter::once(&subject.recorded_by).chain(others) {
        let policy = policy::parse(name)?;
        if !names.contains(name) {
            names.push(name.clone());
            policies.push(policy);
        }
    }
    let trace = subject.read()?;
    let tallies = replay(&trace.recording, &policies, &trace.machine).context("the trace cannot be read again")?;
    let answers: Vec<_> = names.into_iter().zip(tallies).map(|(name, tally)| PolicyTally { name, tally }).collect();
    match format {
        Format::Json => quantity::json(&trace, &answers).iter().for_each(|row| say!("{row}")),
        Format::Text => {
            say!("{}", fitting(&text::text(&trace, &answers)));
            if *full {
                say!("\n{}", fitting(&text::full(&trace, &answers)));
            }
        }
    }
    Ok(Ending::AsExpected)
}
