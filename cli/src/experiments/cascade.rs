//! A report of 2025: threads of one space give back pages of a shared file, two on each of 96 cores; their rate, and
//! what their cycles go to.

use anyhow::Result;
use tlbkit_sim::observer::Cause;
use tlbkit_sim::{Run, RunOutcome};

use super::trial::{Produced, Trial, each, execute_series, mean_and_deviation, rate};
use crate::output::svg::{Axis, Plot, Scale, Stacked, StackedRow};

const POLICY: &str = "linux";
const TELLING: &[Cause] = &[Cause::FlushSend];
const ANSWERING: &[Cause] = &[Cause::Interrupt];
const SHOOTDOWNS: &[Cause] = &[Cause::FlushSend, Cause::FlushWait, Cause::Interrupt];

/// Two lengths of one run: what the shorter one spent is its start, and does not count.
struct Window {
    short: RunOutcome,
    long: RunOutcome,
}

pub(super) fn produce(trial: &Trial) -> Result<Produced> {
    let windows = windows(trial)?;
    let shares = |causes| each(&windows, |window| window.share(causes));
    let mut produced = Produced::default();
    let rates = each(&windows, |window| rate(&window.long) / 1e3);
    produced.figures.push(trial.mean("rate, threads 192", &rates)?);
    for (part, causes) in [("shootdowns", SHOOTDOWNS), ("telling others", TELLING), ("answering", ANSWERING)] {
        produced.figures.push(trial.mean(&of_cycles(part), &shares(causes))?);
    }
    let ours = [SHOOTDOWNS, TELLING, ANSWERING].map(|causes| mean_and_deviation(&shares(causes)).0);
    produced.plots.push(plot(trial, ours)?);
    let first = Vec::from_iter(windows.into_iter().next().map(|window| (POLICY, window.long)));
    produced.compared.push(trial.compare("tlb-flush3, 192 threads", &first));
    Ok(produced)
}

/// A window for each seed.
fn windows(trial: &Trial) -> Result<Vec<Window>> {
    let workload = trial.workload(&[])?;
    let sample_cycles = Some(trial.milliseconds(trial.number("stretch")?));
    let series = ["window_begin", "window_end"].map(|end| {
        let limit_cycles = Some(trial.milliseconds(trial.number(end)?));
        trial.seeds(&Run { limit_cycles, sample_cycles, ..trial.run(POLICY, workload)? })
    });
    let mut outcomes = execute_series(&series.into_iter().collect::<Result<Vec<_>>>()?)?.into_iter();
    let (short, long) = (outcomes.next().unwrap_or_default(), outcomes.next().unwrap_or_default());
    Ok(short.into_iter().zip(long).map(|(short, long)| Window { short, long }).collect())
}

fn of_cycles(part: &str) -> String {
    format!("share of cycles, {part}")
}

impl Window {
    /// What went to `causes`, in percent of the cycles in which a CPU was not idle.
    fn share(&self, causes: &[Cause]) -> f64 {
        let spent = |of: &dyn Fn(&RunOutcome) -> u64| of(&self.long) as f64 - of(&self.short) as f64;
        let busy = spent(&|outcome| outcome.ledger.total() - outcome.cycles(Cause::Idle));
        100.0 * spent(&|outcome| causes.iter().map(|&cause| outcome.cycles(cause)).sum()) / busy
    }
}

fn plot(trial: &Trial, ours: [f64; 3]) -> Result<Plot> {
    let published = |part| trial.published(&of_cycles(part));
    let published = [published("shootdowns")?, published("telling others")?, published("answering")?];
    let row = |label: &str, [all, telling, answering]: [f64; 3]| {
        let values = vec![telling, all - telling - answering, answering, 100.0 - all];
        StackedRow { group: "192 threads".into(), label: label.into(), values }
    };
    Ok(Plot::Stacked(Stacked {
        title: "What the cycles of 192 threads go to".into(),
        about: "Telling others, waiting, answering, and the rest; published and ours.".into(),
        x: Axis::new("share of cycles", "%", Scale::FromZero),
        parts: ["telling others", "waiting", "answering", "the rest"].map(String::from).to_vec(),
        rows: vec![row("published", published), row("ours", ours)],
    }))
}
