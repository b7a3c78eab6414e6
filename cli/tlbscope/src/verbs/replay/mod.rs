//! `tlbscope replay`: what a recorded Linux machine did, under other policies.

mod quantity;
mod report;
mod tables;

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use rayon::prelude::*;
use tlbkit::Policy;
use tlbkit_output::file::WholeFile;
use tlbkit_output::fitting::fitting;
use tlbkit_output::kind::Kind;
use tlbkit_output::policy;
use tlbkit_output::say;
use tlbkit_output::terminal::{Ending, Format, progress_bar};
use tlbkit_replay::replay;

use crate::machine::say_caution;
use crate::trace::{Trace, TraceArguments, UNREAD};
use quantity::PolicyTally;
use tlbkit_trace::{PerfettoWriter, Summary, open};

/// What to replay, and how.
#[derive(Args)]
#[command(after_help = "Example:\n  tlbscope replay slow.tlbtrace --policy linux-6.18:ceiling=0 --html slow.html")]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    subject: TraceArguments,
    /// Policies: PRESET[:KEY=VALUE[+KEY=VALUE...]], separated by commas; see `tlbkit list policies` and `list settings`
    #[arg(long, value_delimiter = ',', value_parser = policy::trimmed, default_value = "linux-4.14,tlbkit")]
    policy: Vec<String>,
    /// A report with pictures, as one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The busiest moment as a picture for Perfetto's viewer
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Milliseconds of that moment
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 20, requires = "perfetto")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000))]
    window: u64,
}

/// Replays it.
pub(crate) fn execute(arguments: &ReplayArguments, format: Format) -> Result<Ending> {
    let (html, perfetto) = (arguments.html.as_deref(), arguments.perfetto.as_deref());
    arguments.subject.check_outputs(&[("--html", Kind::PAGE, html), ("--perfetto", Kind::DRAWING, perfetto)])?;
    let recorder = policy::parse(&arguments.subject.pricing.recorded_by)?;
    let policies = policies(arguments, recorder)?;
    let trace = arguments.subject.read()?;
    say_caution(&trace.machine);
    let answers = answers(&trace, policies)?;
    if let Some(path) = &arguments.html {
        report::write(&trace, &answers, path)?;
    }
    if let Some(path) = &arguments.perfetto {
        write_busiest(&trace, &arguments.subject.trace, arguments.window, path)?;
    }
    match format {
        Format::Json => quantity::json(&trace, &answers).iter().for_each(|row| say!("{row}")),
        Format::Text => say!("{}", fitting(&tables::text(&trace, &answers))),
    }
    Ok(Ending::AsExpected)
}

/// The recording kernel's first: what the others are compared with, and what says how far to trust them.
fn policies(arguments: &ReplayArguments, recorder: Policy) -> Result<Vec<(String, Policy)>> {
    let mut policies = vec![(arguments.subject.pricing.recorded_by.clone(), recorder)];
    for text in &arguments.policy {
        let policy = policy::parse(text)?;
        if policies.iter().all(|(name, _)| name != text) {
            policies.push((text.clone(), policy));
        }
    }
    Ok(policies)
}

fn answers(trace: &Trace, policies: Vec<(String, Policy)>) -> Result<Vec<PolicyTally>> {
    let bar = progress_bar(policies.len());
    let (deduced, machine) = (&trace.recording.deduced, &trace.machine);
    let answer = |(name, policy): (String, Policy)| {
        let tally = replay(deduced, policy, machine).context(UNREAD)?;
        bar.inc(1);
        Ok(PolicyTally { name, tally })
    };
    let answers = policies.into_par_iter().map(answer).collect();
    bar.finish_and_clear();
    answers
}

/// Writes `milliseconds` of the trace at `from` to `path`.
fn write_busiest(trace: &Trace, from: &Path, milliseconds: u64, path: &Path) -> Result<()> {
    let name = || format!("cannot write {}", path.display());
    let window_ns = busiest(&trace.recording.summary, milliseconds * 1_000_000);
    let mut writer = PerfettoWriter::new(WholeFile::begin(path)?, window_ns).with_context(name)?;
    let mut source = open(from).with_context(|| from.display().to_string())?;
    // Where the trace is cut short was said when it was read for the answer.
    while let Ok(Some(event)) = source.next_event() {
        writer.add(&event, source.names()).with_context(name)?;
    }
    writer.finish().with_context(name)?.finish()
}

/// The window of this length around the interval with the most flushes.
fn busiest(summary: &Summary, length_ns: u64) -> Range<u64> {
    let series = summary.series();
    let most = series.buckets().iter().enumerate().max_by_key(|(_, bucket)| bucket.iter().sum::<u64>());
    let since_ns = most.map_or(0, |(index, _)| index as u64 * series.width_ns() + series.width_ns() / 2);
    let middle_ns = series.start_ns().unwrap_or(0).saturating_add(since_ns);
    let start_ns = middle_ns.saturating_sub(length_ns / 2);
    start_ns..start_ns.saturating_add(length_ns)
}
