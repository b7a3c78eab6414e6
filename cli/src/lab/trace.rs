//! A trace and the machine that it is priced on: what `replay` and `tune` have in common.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tlbkit_replay::{Agreement, Paging, Prices, Recording, Tally, agreement, read};
use tlbkit_sim::machine::Machine;

use super::named_run::machine;
use crate::output::table::grid;

/// Which trace, and where it is priced.
#[derive(Args)]
pub(crate) struct TraceArguments {
    /// A trace: of `tlbkit record`, perf.data, or the text of perf script; packed by zstd or not
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) pricing: PricingArguments,
}

/// By whom a trace was recorded, and where it is priced.
#[derive(Args, Clone)]
pub(crate) struct PricingArguments {
    /// A machine of `tlbkit list machines`, or a file, such as `tlbkit calibrate` writes
    #[arg(long, default_value = "recent-vm")]
    pub(crate) machine: String,
    /// The policy of the kernel that recorded the trace
    #[arg(long, value_name = "POLICY", default_value = "linux-6.18")]
    pub(crate) recorded_by: String,
}

/// A trace that was read.
pub(crate) struct Trace {
    pub(crate) recording: Recording,
    pub(crate) machine: Machine,
    pub(crate) prices: Prices,
    /// The file, for headings.
    pub(crate) name: String,
}

impl TraceArguments {
    pub(crate) fn read(&self) -> Result<Trace> {
        let machine = machine(&self.pricing.machine)?;
        let recording = self.recording(Paging::AsRecorded)?;
        let name = self.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Trace { recording, prices: Prices::new(&machine), machine, name })
    }

    /// The trace read with other pages.
    pub(crate) fn recording(&self, paging: Paging) -> Result<Recording> {
        let name = || self.trace.display().to_string();
        let recording = read(|| tlbkit_trace::open(&self.trace), paging).with_context(name)?;
        ensure!(recording.deduced.spaces > 0, "{}: no event that a replay can use", name());
        Ok(recording)
    }
}

impl Trace {
    /// What is missing, in a line or three: it belongs above every answer.
    pub(crate) fn health(&self) -> String {
        let seconds = self.recording.summary.length_ns() as f64 / 1e9;
        let health = format!("{}: {seconds:.3} s, {}", self.name, self.recording.health());
        [Some(health), self.cut(), self.told()].into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// What the agreement cannot vouch for.
    fn told(&self) -> Option<String> {
        let told = self.recording.deduced.told;
        let words = "own flushes of processes older than the trace are taken as it has them, not deduced";
        (told > 0).then(|| format!("{told} {words}"))
    }

    /// Why the trace ends early, if it does.
    fn cut(&self) -> Option<String> {
        let error = self.recording.cut.as_ref()?;
        Some(format!("READ IN PART ({error}): what follows is about the events before"))
    }

    pub(crate) fn agreement(&self, recorder: &Tally) -> Vec<Agreement> {
        agreement(&self.recording.summary, recorder, &self.recording.deduced)
    }

    /// What a page says of itself, a paragraph each.
    pub(crate) fn about(&self) -> Vec<String> {
        let priced = format!("Priced on {}.", self.machine.name);
        self.health().lines().map(str::to_owned).chain([priced]).collect()
    }

    /// Cycles that programs had in all.
    pub(crate) fn cpu_cycles(&self, recorder: &Tally) -> f64 {
        (recorder.busy_ns as f64 * self.machine.system.frequency_mhz.value / 1e3).max(1.0)
    }
}

/// The table of the agreement.
pub(crate) fn agreement_table(rows: &[Agreement]) -> String {
    let (head, rows) = agreement_cells(rows);
    grid(&head, &rows)
}

pub(crate) fn agreement_cells(rows: &[Agreement]) -> (Vec<String>, Vec<Vec<String>>) {
    let row = |row: &Agreement| {
        let percent = row.percent().map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1}"));
        vec![row.quantity.clone(), row.recorded.to_string(), row.told.to_string(), row.replayed.to_string(), percent]
    };
    (
        ["agreement", "recorded", "of it told", "replayed", "% of the rest"].map(String::from).to_vec(),
        rows.iter().map(row).collect(),
    )
}
