//! `tlbkit record`: this machine's flushes and what caused them, into a file.

use std::path::PathBuf;
use std::thread::sleep;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Map, Value, json};
use tlbkit_host::recorder::{Available, available};
use tlbkit_host::{PairedRatio, Sample};
use tlbkit_trace::{EVENTS, FlushReason};

use crate::lab::recording::{End, Recorded, Recording};
use crate::lab::terminal::{Ending, Format, progress_bar, say};
use crate::lab::watching::{LOOK_EVERY, Stopping, WatchArguments, WatchedRun, Watching};
use crate::output::file::check_place;
use crate::output::table::grid;

/// What to record, and where.
#[derive(Args)]
#[command(after_help = "Example: tlbkit record -o build.tlbtrace -- make -j4")]
pub(crate) struct RecordArguments {
    /// The file: perf's own form if it ends in .data, else this program's, a twentieth of the size
    #[arg(short, long, value_name = "FILE", default_value = "recorded.tlbtrace")]
    output: PathBuf,
    /// Run the command so many times without and with recording, in turn, and compare the times
    #[arg(long, value_name = "TIMES")]
    compare: Option<usize>,
    /// End the recording when perf has written so many megabytes; what was recorded until then is kept
    #[arg(long, value_name = "MEGABYTES", default_value_t = 1000)]
    megabytes_max: u64,
    #[command(flatten)]
    subject: WatchArguments,
}

/// Records it.
pub(crate) fn execute(arguments: &RecordArguments, format: Format) -> Result<Ending> {
    arguments.subject.check()?;
    if let Some(times) = arguments.compare {
        ensure!(!arguments.subject.command.is_empty(), "--compare needs a command to run");
        ensure!((1..=100).contains(&times), "--compare {times}: must be 1 to 100");
    }
    let megabytes = arguments.megabytes_max;
    ensure!((1..=1_000_000).contains(&megabytes), "--megabytes-max {megabytes}: must be 1 to 1000000");
    check_place(&arguments.output)?;
    let available = available(EVENTS)?;
    let (recorded, compared) = record(arguments, &available, format)?;
    match format {
        Format::Json => say!("{}", json_row(arguments, &available, &recorded, compared.as_ref())),
        Format::Text => print_text(arguments, &available, &recorded, compared.as_ref()),
    }
    Ok(recorded.run.ending())
}

/// Seconds of the command, without and with recording, in pairs.
#[derive(Debug)]
struct Compared {
    plain: Vec<f64>,
    recorded: Vec<f64>,
}

impl Compared {
    fn overhead(&self) -> PairedRatio {
        PairedRatio::of(&self.plain, &self.recorded)
    }

    fn text(&self) -> String {
        let PairedRatio { ratio, low, high, confidence, pairs } = self.overhead();
        let verdict = if self.overhead().is_difference() { "" } else { ": no difference found" };
        let interval = format!("{low:.3} to {high:.3}, {:.0} % confidence, {pairs} pairs", 100.0 * confidence);
        let plain = Sample::of(self.plain.clone()).median;
        format!("{ratio:.3} times the {plain:.3} s without recording ({interval}){verdict}")
    }
}

/// Records, the last time into the file that is kept.
fn record(arguments: &RecordArguments, available: &Available, format: Format) -> Result<(Recorded, Option<Compared>)> {
    let Some(times) = arguments.compare else { return Ok((record_once(arguments, available, format)?, None)) };
    let bar = progress_bar(2 * times);
    let mut compared = Compared { plain: Vec::new(), recorded: Vec::new() };
    let mut last = None;
    for pair in 0..times {
        // Each of the two is first in every other pair, so that neither gains by what the one before leaves behind.
        let is_plain_first = pair % 2 == 0;
        for is_plain in [is_plain_first, !is_plain_first] {
            if is_plain {
                compared.plain.push(run_plain(&arguments.subject, format)?.seconds);
            } else {
                let recorded = record_once(arguments, available, format)?;
                compared.recorded.push(recorded.run.seconds);
                last = Some(recorded);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok((last.context("nothing was recorded")?, Some(compared)))
}

fn run_plain(subject: &WatchArguments, format: Format) -> Result<WatchedRun> {
    let mut watching = Watching::start(subject, format, Stopping::listen()?)?;
    while !watching.is_over()? {
        sleep(LOOK_EVERY);
    }
    watching.finish()
}

fn record_once(arguments: &RecordArguments, available: &Available, format: Format) -> Result<Recorded> {
    let RecordArguments { output, megabytes_max, subject, .. } = arguments;
    Recording { subject, output, megabytes_max: *megabytes_max, available, format }.make()
}

fn flushes(recorded: &Recorded) -> impl Iterator<Item = (&'static str, u64)> {
    FlushReason::ALL.into_iter().map(|reason| (reason.label(), recorded.converted.summary.flushes(reason)))
}

fn json_row(
    arguments: &RecordArguments,
    available: &Available,
    recorded: &Recorded,
    compared: Option<&Compared>,
) -> Value {
    let flushes: Map<_, _> = flushes(recorded).map(|(label, count)| (label.to_owned(), count.into())).collect();
    let health = &recorded.converted.health;
    json!({
        "file": arguments.output, "bytes": recorded.file_bytes, "perf_bytes": recorded.perf_bytes,
        "seconds": recorded.run.seconds, "events": health.events, "lost": health.lost, "damaged": health.damaged,
        "flushes": flushes, "missing_events": available.missing, "status": recorded.run.status,
        "recorder_cpu_seconds": recorded.cpu_seconds,
        "is_cut_short": recorded.end == End::AtLimit,
        "overhead": compared.map(|compared| json!({
            "ratio": compared.overhead().ratio, "interval": compared.overhead(),
            "is_within_noise": !compared.overhead().is_difference(),
            "plain_seconds": Sample::of(compared.plain.clone()),
            "recorded_seconds": Sample::of(compared.recorded.clone()),
        })),
    })
}

fn print_text(arguments: &RecordArguments, available: &Available, recorded: &Recorded, compared: Option<&Compared>) {
    let seconds = recorded.run.seconds.max(1e-9);
    let row = |(label, count): (&str, u64)| {
        vec![label.to_owned(), count.to_string(), format!("{:.0}", count as f64 / seconds)]
    };
    let rows: Vec<_> = flushes(recorded).map(row).collect();
    say!("{}", grid(&["flush", "events", "a second"].map(String::from), &rows));
    let health = &recorded.converted.health;
    say!("{} in {seconds:.3} s: {health}", arguments.output.display());
    say!("{} bytes; perf.data: {} bytes", recorded.file_bytes, recorded.perf_bytes);
    if !available.missing.is_empty() {
        say!("not in this kernel: {}", available.missing.join(", "));
    }
    if health.lost > 0 {
        say!("LOST {} events: counts are too low; record fewer processes, or on more idle CPUs", health.lost);
    }
    if recorded.end == End::AtLimit {
        say!("CUT SHORT at {} bytes of perf.data; --megabytes-max allows more", recorded.perf_bytes);
    }
    say!("the recorder itself used {:.1} % of one CPU", 100.0 * recorded.cpu_seconds / seconds);
    match compared {
        Some(compared) => say!("overhead: {}", compared.text()),
        None => say!("overhead: not measured; --compare 6 runs the command with and without recording"),
    }
    if let Some(status) = recorded.run.status.filter(|status| *status != 0) {
        say!("the command ended with status {status}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overhead_has_an_interval_and_a_verdict() {
        let clear = Compared { plain: vec![1.0; 6], recorded: vec![1.2; 6] }.text();
        assert_eq!(clear, "1.200 times the 1.000 s without recording (1.200 to 1.200, 97 % confidence, 6 pairs)");
        let noisy = Compared { plain: vec![1.0; 3], recorded: vec![1.46, 0.9, 1.5] }.text();
        assert!(noisy.ends_with("75 % confidence, 3 pairs): no difference found"), "{noisy}");
    }
}
