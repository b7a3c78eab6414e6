//! `tlbkit tune`: what to set on the machine that was recorded, and whether it is worth it.

mod knob;
mod report;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rayon::prelude::*;
use serde_json::{Value, json};
use tlbkit_replay::{Range, Tally, replay};

use crate::output::check_folder;
use crate::output::range::{Sign, percent};
use crate::output::table::grid;
use crate::verbs::replay::trace::{Subject, Trace, agreement_table};
use crate::{Ending, Format, progress, settings};
use knob::{Knob, Setting};

/// What to tune for.
#[derive(Args)]
#[command(after_help = "Example: tlbkit tune recorded.tlbtrace --machine recent-vm")]
pub(crate) struct Options {
    #[command(flatten)]
    subject: Subject,
    /// A report, as one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Below this share of the trace's CPU time nobody should change a thing.
const WORTH: f64 = 0.001;

/// Whether to set it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// Even the least gain is worth it.
    Certainly,
    /// It never costs, and the likely gain is worth it: measure.
    Perhaps,
    No,
}

impl Worth {
    fn of(gain: Range, cpu_cycles: f64) -> Self {
        let least = WORTH * cpu_cycles;
        match gain {
            Range { low, .. } if low >= least => Self::Certainly,
            Range { low, value, .. } if low > 0.0 && value >= least => Self::Perhaps,
            _ => Self::No,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Certainly => "yes",
            Self::Perhaps => "perhaps",
            Self::No => "no",
        }
    }
}

/// What one setting would have saved.
struct Advice {
    setting: Setting,
    /// Cycles; below zero if it costs.
    gain: Range,
    worth: Worth,
}

/// A trace with everything that was tried on it.
struct Tuned {
    trace: Trace,
    recorder: Tally,
    cpu_cycles: f64,
    /// By knob, then as they were tried.
    advice: Vec<Advice>,
}

impl Tuned {
    fn percent(&self, gain: Range) -> String {
        percent(gain, self.cpu_cycles, Sign::Shown)
    }

    /// The best of each knob that is worth it, best first.
    fn best(&self) -> Vec<&Advice> {
        let mut best: Vec<&Advice> = Vec::new();
        for advice in self.advice.iter().filter(|advice| advice.worth != Worth::No) {
            match best.iter_mut().find(|other| !advice.setting.adds_to(&other.setting)) {
                Some(other) if other.gain.value < advice.gain.value => *other = advice,
                Some(_) => {}
                None => best.push(advice),
            }
        }
        best.sort_by(|a, b| b.gain.value.total_cmp(&a.gain.value));
        best
    }
}

/// Tries everything.
pub(crate) fn execute(options: &Options, format: Format) -> Result<Ending> {
    options.html.as_deref().map_or(Ok(()), check_folder)?;
    let recorded_by = settings::policy(&options.subject.recorded_by)?;
    let trace = options.subject.read()?;
    let recorder = replay(&trace.recording.deduced, recorded_by, &trace.machine);
    let knobs = knob::all(&trace, recorded_by, &recorder, &options.subject)?;
    let cpu_cycles = trace.cpu_cycles(&recorder);
    let bar = progress::bar(knobs.len());
    let (deduced, machine, prices) = (&trace.recording.deduced, &trace.machine, &trace.prices);
    let try_it = |knob: Knob| {
        let gain = recorder.bill.saving(&knob.replay(deduced, machine).bill, prices);
        bar.inc(1);
        Advice { setting: knob.setting, gain, worth: Worth::of(gain, cpu_cycles) }
    };
    let advice = knobs.into_par_iter().map(try_it).collect();
    bar.finish_and_clear();
    let tuned = Tuned { trace, recorder, cpu_cycles, advice };
    if let Some(path) = &options.html {
        report::write(&tuned, path)?;
    }
    match format {
        Format::Json => json(&tuned).iter().for_each(|row| println!("{row}")),
        Format::Text => println!("{}", text(&tuned)),
    }
    Ok(Ending::Fine)
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

const HEAD: [&str; 3] = ["setting", "gain, of CPU time", "worth it"];

/// A row a setting.
fn cells(tuned: &Tuned) -> Vec<Vec<String>> {
    let row = |advice: &Advice| {
        let Setting { knob, value, .. } = &advice.setting;
        vec![format!("{knob} {value}"), tuned.percent(advice.gain), advice.worth.label().to_owned()]
    };
    tuned.advice.iter().map(row).collect()
}

/// What to do: words, and commands if there are any.
fn verdict(tuned: &Tuned) -> Vec<(String, &[String])> {
    let best = tuned.best();
    let mut verdict = Vec::new();
    if best.iter().all(|advice| advice.worth != Worth::Certainly) {
        let all = percent(tuned.recorder.bill.total(&tuned.trace.prices), tuned.cpu_cycles, Sign::Absent);
        let least = 100.0 * WORTH;
        let words =
            format!("Nothing worth changing: no setting gains {least} % of CPU time for certain. Flushes cost {all}.");
        verdict.push((words, [].as_slice()));
    }
    verdict.extend(best.into_iter().map(|advice| {
        let Setting { knob, value, commands, remark, .. } = &advice.setting;
        let doubt = if advice.worth == Worth::Perhaps { "Perhaps, so measure it: " } else { "" };
        let words = format!("{doubt}{knob} {value}: {} of CPU time. {remark}", tuned.percent(advice.gain));
        (words, commands.as_slice())
    }));
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_for_gains_that_are_sure_and_large() {
        let of = |low, value| Worth::of(Range { low, value, high: 100.0 }, 1000.0).label();
        assert_eq!([of(1.0, 2.0), of(0.1, 2.0), of(0.1, 0.9), of(0.0, 50.0)], ["yes", "perhaps", "no", "no"]);
    }
}
