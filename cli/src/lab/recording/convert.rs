//! What perf wrote, read once: counted, and written again in the compact form.

use std::path::Path;

use anyhow::{Context, Result};
use tlbkit_trace::{CompactWriter, Health, Summary, open};

use crate::output::file::{Old, WholeFile};

/// What is in a recording.
pub(crate) struct Converted {
    pub(crate) summary: Summary,
    pub(crate) health: Health,
}

/// Reads `perf_file` and writes `compact`, if that is wanted, in the place of an `old` one.
pub(super) fn convert(perf_file: &Path, compact: Option<&Path>, old: Old) -> Result<Converted> {
    let in_input = || perf_file.display().to_string();
    let in_output = || compact.map_or_else(String::new, |path| format!("cannot write {}", path.display()));
    let mut source = open(perf_file).with_context(in_input)?;
    let mut writer = compact.map(create).transpose()?;
    let mut summary = Summary::default();
    while let Some(event) = source.next_event().with_context(in_input)? {
        summary.add(&event, source.names());
        if let Some(writer) = &mut writer {
            writer.add(&event, source.names()).with_context(in_output)?;
        }
    }
    if let Some(writer) = writer {
        writer.finish(source.health()).with_context(in_output)?.finish_over(old)?;
    }
    Ok(Converted { summary, health: source.health().clone() })
}

fn create(path: &Path) -> Result<CompactWriter<WholeFile>> {
    CompactWriter::new(WholeFile::begin(path)?).with_context(|| format!("cannot write {}", path.display()))
}
