//! `tlbkit tune`: what to set on the machine that was recorded, and whether it is worth it.

mod advice;
mod allocator;
mod knob;
mod report;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rayon::prelude::*;
use serde_json::{Value, json};
use tlbkit_replay::replay;

use crate::lab::policy;
use crate::lab::terminal::{Ending, Format, progress_bar, say};
use crate::lab::trace::{TraceArguments, agreement_table};
use crate::output::file::check_place;
use crate::output::table::grid;
use advice::{Advice, HEAD, Tuned, Worth, cells, verdict};
use knob::Knob;

/// What to tune for.
#[derive(Args)]
#[command(after_help = "Example: tlbkit tune recorded.tlbtrace --machine recent-vm")]
pub(crate) struct TuneArguments {
    #[command(flatten)]
    subject: TraceArguments,
    /// A report, as one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Tries everything.
pub(crate) fn execute(arguments: &TuneArguments, format: Format) -> Result<Ending> {
    arguments.html.as_deref().map_or(Ok(()), check_place)?;
    let recorded_by = policy::parse(&arguments.subject.recorded_by)?;
    let trace = arguments.subject.read()?;
    let recorder = replay(&trace.recording.deduced, recorded_by, &trace.machine);
    let knobs = knob::all(&trace, recorded_by, &recorder, &arguments.subject)?;
    let cpu_cycles = trace.cpu_cycles(&recorder);
    let bar = progress_bar(knobs.len());
    let (deduced, machine, prices) = (&trace.recording.deduced, &trace.machine, &trace.prices);
    let try_it = |knob: Knob| {
        let gain = recorder.bill.saving(&knob.replay(deduced, machine).bill, prices);
        bar.inc(1);
        Advice { setting: knob.setting, gain, worth: Worth::of(gain, cpu_cycles) }
    };
    let advice = knobs.into_par_iter().map(try_it).collect();
    bar.finish_and_clear();
    let tuned = Tuned { trace, recorder, cpu_cycles, advice };
    if let Some(path) = &arguments.html {
        report::write(&tuned, path)?;
    }
    match format {
        Format::Json => json(&tuned).iter().for_each(|row| say!("{row}")),
        Format::Text => say!("{}", text(&tuned)),
    }
    Ok(Ending::AsExpected)
}

fn json(tuned: &Tuned) -> Vec<Value> {
    let agreement = tuned.trace.agreement(&tuned.recorder).into_iter().map(|row| {
        json!({
            "kind": "agreement", "quantity": row.quantity, "recorded": row.recorded, "replayed": row.replayed,
            "agreement_pct": row.percent(),
        })
    });
    let share = |cycles: f64| 100.0 * cycles / tuned.cpu_cycles;
    let advice = tuned.advice.iter().map(|Advice { setting, gain, worth }| {
        json!({
            "kind": "setting", "knob": setting.knob, "setting": setting.value, "value": share(gain.value),
            "low": share(gain.low), "high": share(gain.high), "unit": "percent of CPU time",
            "worth": worth.label(), "commands": setting.commands, "remark": setting.remark,
        })
    });
    agreement.chain(advice).collect()
}

fn text(tuned: &Tuned) -> String {
    let table = grid(&HEAD.map(String::from), &cells(tuned));
    let head =
        format!("{}\n\n{}\n{table}\n", tuned.trace.health(), agreement_table(&tuned.trace.agreement(&tuned.recorder)));
    let lines = |(words, commands): (String, &[String])| {
        [words].into_iter().chain(commands.iter().map(|command| format!("    {command}"))).collect::<Vec<_>>()
    };
    head + &verdict(tuned).into_iter().flat_map(lines).collect::<Vec<_>>().join("\n")
}
