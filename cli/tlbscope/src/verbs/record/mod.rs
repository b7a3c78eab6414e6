//! `tlbscope record`: this machine's flushes and what caused them, into a file.

mod compared;
mod light;
mod predicted;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::{Map, Value, json};
use tlbkit_host::recorder::{Available, available};
use tlbkit_output::file::{Old, aside, check_output, has_something};
use tlbkit_output::number;
use tlbkit_output::table::grid;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_output::{note, say};
use tlbkit_trace::{EVENTS, FlushReason};

use crate::kind::RECORDING;
use crate::recording::{Gaps, MEGABYTES_MAX, Recorded, Recording};
use crate::watching::WatchArguments;
use compared::{Comparison, Pairs};
use predicted::Predicted;

/// Events of a shorter time say nothing of a second.
const RATE_LEAST_SECONDS: f64 = 0.1;

/// What to record, and where.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tlbscope record --light -- make -j4\n  tlbscope record -o build.tlbtrace -- make -j4"
)]
pub(crate) struct RecordArguments {
    /// The file: perf's own form if it ends in .data, else this program's, a twentieth of the size; a recording that is
    /// there gets .old behind its name
    #[arg(short, long, value_name = "FILE", default_value = "recorded.tlbtrace")]
    output: PathBuf,
    /// Run the command so many times to its end without and with recording, or counting, in turn, and compare the CPU
    /// times
    #[arg(long, value_name = "TIMES", conflicts_with = "duration")]
    compare: Option<usize>,
    /// Count only: the kernel counts faults and flushes of the command, nothing is written, and it is told what a
    /// recording would write
    #[arg(long, conflicts_with_all = ["output", "stacks", "pid", "all_cpus", "duration", "megabytes_max"])]
    light: bool,
    /// End the recording when perf has written so many megabytes; what was recorded until then is kept
    #[arg(long, value_name = "MEGABYTES", default_value_t = MEGABYTES_MAX)]
    megabytes_max: u64,
    #[command(flatten)]
    subject: WatchArguments,
}

/// Records it.
pub(crate) fn execute(arguments: &RecordArguments, format: Format) -> Result<Ending> {
    if let Some(times) = arguments.compare {
        ensure!((1..=100).contains(&times), "--compare {times}: must be 1 to 100");
    }
    if arguments.light {
        return light::count(&arguments.subject.command, arguments.compare, format);
    }
    arguments.subject.check()?;
    ensure!(arguments.compare.is_none() || !arguments.subject.command.is_empty(), "--compare needs a command to run");
    let megabytes = arguments.megabytes_max;
    ensure!((1..=1_000_000).contains(&megabytes), "--megabytes-max {megabytes}: must be 1 to 1000000");
    check_room(&arguments.output)?;
    let available = available(EVENTS)?;
    let predicted = Cell::new(predicted::before(&arguments.subject, &available)?);
    let old = Cell::new(Old::SetAside);
    let once = |predicted: &Cell<_>| record_once(arguments, &available, format, predicted, &old);
    let (recorded, compared) = match arguments.compare {
        None => (once(&predicted)?, Comparison::NotAsked),
        Some(pairs) => match compared::run(pairs, &arguments.subject, format, &predicted, once)? {
            Pairs::Done(last, compared) => (last, Comparison::Done(compared)),
            Pairs::Stopped(Some(last), _) => (last, Comparison::Stopped),
            Pairs::Stopped(None, ending) => {
                note!("tlbscope: stopped before anything was recorded");
                return Ok(ending);
            }
        },
    };
    let told = Told { predicted, compared };
    match format {
        Format::Json => say!("{}", json_row(arguments, &available, &recorded, &told)),
        Format::Text => print_text(arguments, &available, &recorded, &told),
    }
    Ok(recorded.run.ending())
}

/// What is known of what recording costs.
struct Told {
    predicted: Cell<Option<Predicted>>,
    compared: Comparison,
}

/// Refuses a place in which a recording, or the one that is there under its name for old ones, cannot be put.
fn check_room(output: &Path) -> Result<()> {
    check_output(output, RECORDING)?;
    if has_something(output) { check_output(&aside(output), RECORDING) } else { Ok(()) }
}

/// Records. What its first second says of its cost is told if nothing was before. A recording that was there before
/// the first one is set aside.
fn record_once(
    arguments: &RecordArguments,
    available: &Available,
    format: Format,
    predicted: &Cell<Option<Predicted>>,
    old: &Cell<Old>,
) -> Result<Recorded> {
    let RecordArguments { output, megabytes_max, subject, .. } = arguments;
    let after_second = |rate: &_| {
        if predicted.get().is_none() {
            predicted.set(predicted::tell(rate, predicted::Basis::FirstSecond));
        }
    };
    let recording =
        Recording { subject, output, megabytes_max: *megabytes_max, available, format, after_second: &after_second };
    let is_moved = old.get() == Old::SetAside && has_something(output);
    let recorded = recording.make_over(old.get())?;
    old.set(Old::Replaced);
    if is_moved {
        note!("tlbscope: {}: what was there is {} now", output.display(), aside(output).display());
    }
    Ok(recorded)
}

fn flushes(recorded: &Recorded) -> impl Iterator<Item = (&'static str, u64)> {
    FlushReason::ALL.into_iter().map(|reason| (reason.label(), recorded.converted.summary.flushes(reason)))
}

fn json_row(arguments: &RecordArguments, available: &Available, recorded: &Recorded, told: &Told) -> Value {
    let flushes: Map<_, _> = flushes(recorded).map(|(label, count)| (label.to_owned(), count.into())).collect();
    let (health, gaps) = (&recorded.converted.health, Gaps::of(recorded));
    json!({
        "file": arguments.output, "bytes": recorded.file_bytes, "perf_bytes": recorded.perf_bytes,
        "seconds": recorded.run.seconds, "events": health.events, "lost": health.lost, "damaged": health.damaged,
        "flushes": flushes, "missing_events": available.missing, "status": recorded.run.status,
        "recorder_cpu_seconds": recorded.cpu_seconds,
        "is_cut_short": gaps.is_cut_short(), "is_disk_full": gaps.is_disk_full(),
        "predicted": told.predicted.get(), "overhead": told.compared.json(),
        "is_comparison_stopped": matches!(told.compared, Comparison::Stopped),
    })
}

fn print_text(arguments: &RecordArguments, available: &Available, recorded: &Recorded, told: &Told) {
    let summary = &recorded.converted.summary;
    let spanned_seconds = summary.length_ns() as f64 / 1e9;
    let rate = |count: u64| {
        if spanned_seconds < RATE_LEAST_SECONDS {
            return number::NONE.to_owned();
        }
        format!("{:.0}", count as f64 / spanned_seconds)
    };
    let row = |(label, count): (&str, u64)| vec![label.to_owned(), count.to_string(), rate(count)];
    let rows: Vec<_> = flushes(recorded).map(row).collect();
    say!("{}", grid(&["flush", "events", "a second"].map(String::from), &rows));
    let health = &recorded.converted.health;
    say!("{}: {}: {health}", arguments.output.display(), recorded.run.window(summary));
    say!("{} bytes; perf.data: {} bytes", recorded.file_bytes, recorded.perf_bytes);
    if !available.missing.is_empty() {
        say!("not in this kernel: {}", available.missing.join(", "));
    }
    Gaps::of(recorded).lines("--megabytes-max allows more").iter().for_each(|line| say!("{line}"));
    say!("the recorder itself used {:.1} % of one CPU", 100.0 * recorded.cpu_seconds / recorded.run.seconds.max(1e-9));
    if let Some(predicted) = told.predicted.get() {
        say!("overhead predicted: {predicted}");
    }
    say!("{}", told.compared.text());
    if let Some(status) = recorded.run.status.filter(|status| *status != 0) {
        say!("the command ended with status {status}");
    }
}
