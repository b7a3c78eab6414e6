//! `tlbscope record`: this machine's flushes and what caused them, into a file; and what that says.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::{Map, Value, json};
use tlbkit_host::recorder::{Available, available};
use tlbkit_output::file::{Old, aside, check_output, has_something};
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_output::{note, say};
use tlbkit_trace::{EVENTS, FlushReason};

use crate::chosen::ChosenArguments;
use crate::kind::RECORDING;
use crate::recording::{Gaps, MEGABYTES_MAX, Recorded, Recording};
use crate::verdict::Explained;
use crate::watching::WatchArguments;

/// What to record, and where.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tlbscope record -- ./service --once\n  tlbscope record -o build.tlbtrace -- make -j4\n  \
    tlbscope record --all-cpus --duration 10 --process redis-server"
)]
pub(crate) struct RecordArguments {
    /// The file: perf's own form if it ends in .data, else this program's, a twentieth of the size; a recording that is
    /// there gets .old behind its name
    #[arg(short, long, value_name = "FILE", default_value = "recorded.tlbtrace")]
    output: PathBuf,
    /// End the recording when perf has written so many megabytes; what was recorded until then is kept
    #[arg(long, value_name = "MEGABYTES", default_value_t = MEGABYTES_MAX)]
    megabytes_max: u64,
    #[command(flatten)]
    subject: WatchArguments,
    #[command(flatten)]
    chosen: ChosenArguments,
}

/// Records it, and explains that.
pub(crate) fn execute(arguments: &RecordArguments, format: Format) -> Result<Ending> {
    let RecordArguments { output, megabytes_max, subject, chosen } = arguments;
    subject.check()?;
    chosen.check()?;
    let megabytes = *megabytes_max;
    ensure!((1..=1_000_000).contains(&megabytes), "--megabytes-max {megabytes}: must be 1 to 1000000");
    check_room(output)?;
    let available = available(EVENTS)?;
    let is_moved = has_something(output);
    let recorded = Recording { subject, output, megabytes_max: megabytes, available: &available, format }
        .make_over(Old::SetAside)?;
    if is_moved {
        note!("tlbscope: {}: what was there is {} now", output.display(), aside(output).display());
    }
    // A file that cannot be read again, as a device, is explained to nobody.
    let explained = Explained::read(output, chosen, recorded.run.pid, recorded.made());
    match format {
        Format::Json => {
            let rows = explained.iter().flat_map(Explained::json);
            [json_row(arguments, &available, &recorded)].into_iter().chain(rows).for_each(|row| say!("{row}"));
        }
        Format::Text => print_text(arguments, &available, &recorded, &explained),
    }
    Ok(recorded.run.ending())
}

/// Refuses a place in which a recording, or the one that is there under its name for old ones, cannot be put.
fn check_room(output: &Path) -> Result<()> {
    check_output(output, RECORDING)?;
    if has_something(output) { check_output(&aside(output), RECORDING) } else { Ok(()) }
}

fn json_row(arguments: &RecordArguments, available: &Available, recorded: &Recorded) -> Value {
    let summary = &recorded.converted.summary;
    let flushes =
        FlushReason::ALL.into_iter().map(|reason| (reason.label().to_owned(), summary.flushes(reason).into()));
    let flushes: Map<_, _> = flushes.collect();
    let (health, gaps) = (&recorded.converted.health, Gaps::of(recorded));
    json!({
        "kind": "recording", "file": arguments.output, "bytes": recorded.file_bytes,
        "perf_bytes": recorded.perf_bytes, "seconds": recorded.run.seconds, "events": health.events,
        "lost": health.lost, "damaged": health.damaged, "flushes": flushes, "missing_events": available.missing,
        "status": recorded.run.status, "recorder_cpu_seconds": recorded.cpu_seconds, "event_us": recorded.event_us,
        "is_cut_short": gaps.is_cut_short(), "is_disk_full": gaps.is_disk_full(),
    })
}

fn print_text(arguments: &RecordArguments, available: &Available, recorded: &Recorded, explained: &Result<Explained>) {
    Gaps::of(recorded).lines("--megabytes-max allows more").iter().for_each(|line| say!("{line}"));
    match explained {
        Ok(explained) => say!("{}", explained.screen().trim_end()),
        Err(error) => say!("Nothing to explain: {error:#}"),
    }
    if !available.missing.is_empty() {
        say!("Not in this kernel: {}.", available.missing.join(", "));
    }
    let (file, bytes) = (arguments.output.display(), recorded.file_bytes);
    say!("The recording is {file} ({bytes} bytes): tlbscope explain --full {file}");
    if let Some(status) = recorded.run.status.filter(|status| *status != 0) {
        say!("The command ended with status {status}.");
    }
}
