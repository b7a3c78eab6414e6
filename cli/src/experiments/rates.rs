//! Rates of a benchmark by its number of threads, each on a core of its own as long as there are cores: as many threads
//! as the experiment's file expects rates of.

use anyhow::{Result, ensure};
use tlbkit_sim::{Run, RunOutcome};

use super::trial::{Produced, Trial, each, execute_series, mean_and_deviation, rate};
use crate::output::svg::{Axis, Chart, Curve, Draw, Ink, Plot, Point, Scale};
use crate::published::experiment::PublishedSetup;

const POLICY: &str = "linux";

/// How a quantity begins that is a rate; the number of threads follows.
const RATE: &str = "rate, threads ";

/// The rate for each number of threads, in thousands a second, on all CPUs of the machine.
pub(super) fn produce(trial: &Trial) -> Result<Produced> {
    let (threads, compared) = counts(trial)?;
    let series = threads.iter().map(|&threads| runs(trial, threads)).collect::<Result<Vec<_>>>()?;
    let outcomes = execute_series(&series)?;
    let mut produced = Produced::default();
    let mut means = Vec::new();
    for (&threads, outcomes) in threads.iter().zip(&outcomes) {
        let rates = each(outcomes, thousands);
        produced.figures.push(trial.mean(&quantity(threads), &rates)?);
        means.push(point(threads, mean_and_deviation(&rates).0));
    }
    produced.plots.push(plot(trial, &threads, means)?);
    let full = threads.iter().zip(outcomes).find(|(threads, _)| **threads == compared);
    let full = full.and_then(|(_, outcomes)| outcomes.into_iter().next()).map(|outcome| (POLICY, outcome));
    let title = format!("{}, {} threads", trial.experiment.setup.workload, compared);
    produced.compared.push(trial.compare(&title, &Vec::from_iter(full)));
    Ok(produced)
}

/// The numbers of threads that a rate is expected of, and the one of them whose outcome is set out in full.
pub(super) fn counts(trial: &Trial) -> Result<(Vec<u64>, u64)> {
    let expected = trial.experiment.expected.iter();
    let threads = expected.filter_map(|expected| expected.quantity.strip_prefix(RATE)?.parse().ok());
    let (threads, compared) = (Vec::from_iter(threads), trial.number("compared")? as u64);
    let is_expected = threads.contains(&compared);
    ensure!(is_expected, "compared = {compared}: must be one of the threads that a rate is expected of");
    Ok((threads, compared))
}

fn quantity(threads: u64) -> String {
    format!("{RATE}{threads}")
}

fn runs(trial: &Trial, threads: u64) -> Result<Vec<Run<'_>>> {
    let workload = trial.workload(&[format!("threads={threads}")])?;
    let limit_cycles = Some(trial.milliseconds(trial.number("length")?));
    let sample_cycles = Some(trial.milliseconds(trial.number("stretch")?));
    trial.seeds(&Run { limit_cycles, sample_cycles, ..trial.run(POLICY, workload)? })
}

fn thousands(outcome: &RunOutcome) -> f64 {
    rate(outcome) / 1e3
}

fn point(threads: u64, y: f64) -> Point {
    Point { x: threads as f64, y, spread: None }
}

fn plot(trial: &Trial, threads: &[u64], ours: Vec<Point>) -> Result<Plot> {
    let PublishedSetup { workload, machine, .. } = &trial.experiment.setup;
    let published = threads.iter().map(|&threads| Ok(point(threads, trial.published(&quantity(threads))?)));
    let curve = |ink, label: &str, points| Curve { label: label.into(), ink, tone: 0, draw: Draw::Both, points };
    Ok(Plot::Chart(Chart {
        title: format!("{workload}: pages a second against threads, {machine}"),
        about: "Pages a second of all threads together, published and ours.".into(),
        x: Axis::new("threads", "", Scale::Around),
        y: Axis::new("rate", "k pages/s", Scale::FromZero),
        curves: vec![
            curve(Ink::Published, "published", published.collect::<Result<_>>()?),
            curve(Ink::Ours, "ours", ours),
        ],
    }))
}
