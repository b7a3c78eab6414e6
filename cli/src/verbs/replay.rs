//! `tlbkit replay`: what a recorded Linux machine did, under other policies.

mod quantity;
pub(crate) mod recorded;
mod report;
mod tables;
pub(crate) mod trace;
mod window;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rayon::prelude::*;
use tlbkit::Policy;
use tlbkit_replay::{Tally, replay};

use crate::output::check_folder;
use crate::{Ending, Format, progress, settings};
use trace::{Subject, Trace};

/// What to replay, and how.
#[derive(Args)]
#[command(
    after_help = "Example: tlbkit replay recorded.tlbtrace --policy linux-4.14,linux-6.18:ceiling=0 --html replay.html"
)]
pub(crate) struct Options {
    #[command(flatten)]
    subject: Subject,
    /// Policies: PRESET[:KEY=VALUE[+KEY=VALUE...]], separated by commas; see `tlbkit list policies` and `list settings`
    #[arg(long, value_delimiter = ',', default_value = "linux-4.14,tlbkit")]
    policy: Vec<String>,
    /// A report with pictures, as one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The busiest moment as a picture for Perfetto's viewer
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Milliseconds of that moment
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    window: u64,
}

/// One policy's answer.
struct Answer {
    name: String,
    tally: Tally,
}

/// Replays it.
pub(crate) fn execute(options: &Options, format: Format) -> Result<Ending> {
    [&options.html, &options.perfetto].into_iter().flatten().try_for_each(|file| check_folder(file))?;
    let recorder = settings::policy(&options.subject.recorded_by)?;
    let policies = policies(options, recorder)?;
    let trace = options.subject.read()?;
    let answers = answers(&trace, policies);
    if let Some(path) = &options.html {
        report::write(&trace, &answers, path)?;
    }
    if let Some(path) = &options.perfetto {
        window::write(&trace, &options.subject.trace, options.window, path)?;
    }
    match format {
        Format::Json => quantity::json(&trace, &answers).iter().for_each(|row| println!("{row}")),
        Format::Text => println!("{}", tables::text(&trace, &answers)),
    }
    Ok(Ending::Fine)
}

/// The recording kernel's first: what the others are compared with, and what says how far to trust them.
fn policies(options: &Options, recorder: Policy) -> Result<Vec<(String, Policy)>> {
    let mut policies = vec![(options.subject.recorded_by.clone(), recorder)];
    for text in &options.policy {
        let policy = settings::policy(text)?;
        if policies.iter().all(|(name, _)| name != text) {
            policies.push((text.clone(), policy));
        }
    }
    Ok(policies)
}

fn answers(trace: &Trace, policies: Vec<(String, Policy)>) -> Vec<Answer> {
    let bar = progress::bar(policies.len());
    let (deduced, machine) = (&trace.recording.deduced, &trace.machine);
    let answer = |(name, policy): (String, Policy)| {
        let tally = replay(deduced, policy, machine);
        bar.inc(1);
        Answer { name, tally }
    };
    let answers = policies.into_par_iter().map(answer).collect();
    bar.finish_and_clear();
    answers
}
