//! The stretch of a trace with the most flushes, written for Perfetto's viewer.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use tlbkit_trace::{PerfettoWriter, Summary, open};

use crate::lab::trace::Trace;
use crate::output::file::WholeFile;

/// Writes `milliseconds` of the trace at `from` to `path`.
pub(super) fn write(trace: &Trace, from: &Path, milliseconds: u64, path: &Path) -> Result<()> {
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
