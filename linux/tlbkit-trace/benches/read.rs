//! How fast traces are read: `cargo bench -p tlbkit-trace -- FILE...`, any form, the best of five runs each.
//!
//! In time on the CPU, the kernel's included, so that a busy machine says nearly the same as an idle one.

use std::path::Path;
use tlbkit_trace::{CompactWriter, Error, Summary, open};

const RUNS: usize = 5;

fn main() -> Result<(), Error> {
    for file in std::env::args().skip(1).filter(|arg| !arg.starts_with('-')) {
        let path = Path::new(&file);
        let bytes = path.metadata()?.len();
        let mut events = 0;
        let seconds = best(|| {
            events = read(path)?;
            Ok(())
        })?;
        let mb_per_s = bytes as f64 / 1e6 / seconds;
        let compact_bytes = compact(path)?;
        println!(
            "{file}: {events} events, {bytes} bytes, {mb_per_s:.0} MB/s, {:.2} M events/s; compact: {compact_bytes} \
             bytes, {:.1} times smaller; peak memory {}",
            events as f64 / 1e6 / seconds,
            bytes as f64 / compact_bytes as f64,
            peak_memory(),
        );
    }
    Ok(())
}

fn best(mut run: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let begin = cpu_seconds()?;
        run()?;
        best = best.min(cpu_seconds()? - begin);
    }
    Ok(best)
}

/// What this thread, the only one, has had so far.
fn cpu_seconds() -> Result<f64, Error> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    ns.map(|ns| ns / 1e9).ok_or_else(|| std::io::Error::other(format!("schedstat says {text:?}")).into())
}

/// Reads and sums up, as `record` does.
fn read(path: &Path) -> Result<u64, Error> {
    let mut source = open(path)?;
    let mut summary = Summary::default();
    while let Some(event) = source.next_event()? {
        summary.add(&event);
    }
    std::hint::black_box(&summary);
    Ok(source.health().events)
}

fn compact(path: &Path) -> Result<usize, Error> {
    let mut source = open(path)?;
    let mut writer = CompactWriter::new(Vec::new())?;
    while let Some(event) = source.next_event()? {
        writer.add(&event, source.names())?;
    }
    Ok(writer.finish(source.health())?.len())
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |line| line.trim().to_owned())
}
