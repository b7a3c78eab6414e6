//! `tlbkit record`: this machine's flushes and what caused them, into a file.

mod convert;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Map, Value, json};
use tlbkit_host::Sample;
use tlbkit_host::recorder::{Available, Order, Recorder, Stacks, available};
use tlbkit_trace::{EVENTS, FlushReason};

use crate::lab::terminal::{Ending, Format, progress_bar, say};
use crate::lab::watching::{LOOK_EVERY, WatchArguments, WatchedRun, Watching};
use crate::output::file::check_folder;
use crate::output::table::grid;
use convert::Converted;

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
    #[command(flatten)]
    subject: WatchArguments,
}

impl RecordArguments {
    fn folder(&self) -> &Path {
        self.output.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// Records it.
pub(crate) fn execute(arguments: &RecordArguments, format: Format) -> Result<Ending> {
    arguments.subject.check()?;
    if let Some(times) = arguments.compare {
        ensure!(!arguments.subject.command.is_empty(), "--compare needs a command to run");
        ensure!((1..=100).contains(&times), "--compare {times}: must be 1 to 100");
    }
    check_folder(&arguments.output)?;
    let available = available(EVENTS)?;
    let (recorded, compared) = record(arguments, &available, format)?;
    match format {
        Format::Json => say!("{}", json_row(arguments, &available, &recorded, compared.as_ref())),
        Format::Text => print_text(arguments, &available, &recorded, compared.as_ref()),
    }
    Ok(Ending::AsExpected)
}

/// One recording, read again.
struct Recorded {
    run: WatchedRun,
    perf_bytes: u64,
    file_bytes: u64,
    /// CPU time of the recorder itself, while it recorded.
    cpu_seconds: f64,
    converted: Converted,
}

/// Seconds of the command, without and with recording.
#[derive(Debug)]
struct Compared {
    plain: Sample,
    recorded: Sample,
}

impl Compared {
    fn ratio(&self) -> f64 {
        self.recorded.median / self.plain.median
    }

    /// Whether the slow runs without recording were as slow as the fast ones with it.
    fn is_within_noise(&self) -> bool {
        self.plain.high >= self.recorded.low
    }

    fn text(&self) -> String {
        let Sample { median, repetitions, .. } = self.plain;
        let spreads = [self.plain, self.recorded].map(|sample| 100.0 * sample.spread());
        let noise = if self.is_within_noise() { ", within the noise" } else { "" };
        let times = format!("{:.3} times the {median:.3} s without recording{noise}", self.ratio());
        format!("{times} ({repetitions} runs each; spread {:.0} % and {:.0} %)", spreads[0], spreads[1])
    }
}

/// Records, the last time into the file that is kept.
fn record(arguments: &RecordArguments, available: &Available, format: Format) -> Result<(Recorded, Option<Compared>)> {
    let Some(times) = arguments.compare else { return Ok((record_once(arguments, available, format)?, None)) };
    let bar = progress_bar(2 * times);
    let (mut plain, mut with) = (Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..times {
        plain.push(run_plain(&arguments.subject, format)?.seconds);
        bar.inc(1);
        let recorded = record_once(arguments, available, format)?;
        with.push(recorded.run.seconds);
        last = Some(recorded);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let recorded = last.context("nothing was recorded")?;
    Ok((recorded, Some(Compared { plain: Sample::of(plain), recorded: Sample::of(with) })))
}

fn run_plain(subject: &WatchArguments, format: Format) -> Result<WatchedRun> {
    let mut watching = Watching::start(subject, format)?;
    while !watching.is_over()? {
        sleep(LOOK_EVERY);
    }
    watching.finish()
}

fn record_once(arguments: &RecordArguments, available: &Available, format: Format) -> Result<Recorded> {
    let keep = arguments.output.extension() == Some(OsStr::new("data"));
    // Beside the result: a folder for temporary files may be too small.
    let parent = arguments.folder();
    let folder = tempfile::tempdir_in(parent).with_context(|| parent.display().to_string())?;
    let perf_file = if keep { arguments.output.clone() } else { folder.path().join("perf.data") };
    let (run, cpu_seconds) = run_recorded(arguments, available, &perf_file, format)?;
    let compact = (!keep).then_some(arguments.output.as_path());
    let converted = convert::convert(&perf_file, compact)?;
    let bytes = |path: &Path| fs::metadata(path).map(|data| data.len()).with_context(|| path.display().to_string());
    let (perf_bytes, file_bytes) = (bytes(&perf_file)?, bytes(&arguments.output)?);
    Ok(Recorded { run, perf_bytes, file_bytes, cpu_seconds, converted })
}

fn run_recorded(
    arguments: &RecordArguments,
    available: &Available,
    file: &Path,
    format: Format,
) -> Result<(WatchedRun, f64)> {
    let subject = &arguments.subject;
    let order = Order {
        events: available.events.clone(),
        watched: subject.watched(),
        stacks: if subject.stacks { Stacks::Recorded } else { Stacks::Absent },
        file: Some(file),
    };
    let mut recorder = Recorder::start(&order)?;
    recorder.wait_until_ready()?;
    let to_begin = recorder.cpu_seconds().unwrap_or(0.0);
    let mut watching = Watching::start(subject, format)?;
    while !watching.is_over()? && !recorder.is_over() {
        sleep(LOOK_EVERY);
    }
    let run = watching.finish()?;
    let cpu_seconds = recorder.cpu_seconds().map_or(0.0, |in_all| in_all - to_begin);
    recorder.stop();
    recorder.wait()?;
    Ok((run, cpu_seconds))
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
        "overhead": compared.map(|compared| json!({
            "ratio": compared.ratio(), "is_within_noise": compared.is_within_noise(),
            "plain_seconds": compared.plain, "recorded_seconds": compared.recorded,
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
    say!("the recorder itself used {:.1} % of one CPU", 100.0 * recorded.cpu_seconds / seconds);
    match compared {
        Some(compared) => say!("overhead: {}", compared.text()),
        None => say!("overhead: not measured; --compare 5 runs the command with and without recording"),
    }
    if let Some(status) = recorded.run.status.filter(|status| *status != 0) {
        say!("the command ended with status {status}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_within_the_noise_says_so() {
        let runs = |values: [f64; 3]| Sample::of(values.to_vec());
        let clear = Compared { plain: runs([1.0, 1.0, 1.0]), recorded: runs([1.2, 1.2, 1.2]) };
        assert!(clear.text().starts_with("1.200 times the 1.000 s without recording (3 runs each"), "{clear:?}");
        let noisy = Compared { plain: runs([1.0, 1.1, 1.3]), recorded: runs([1.0, 1.2, 1.3]) };
        assert!(noisy.text().contains("within the noise"), "{noisy:?}");
    }
}
