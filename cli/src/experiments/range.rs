//! Document 004: threads that fill and free buffers, under three rules for flushing a range.
//!
//! The document's iterations are stretches of our runs: see `iterations`.

use anyhow::{Context, Result};
use tlbkit_sim::RunOutcome;

use super::iterations::IterationPlan;
use super::trial::{Produced, Trial, each, execute_all, mean_and_deviation};
use crate::output::svg::{Axis, BarGroup, Bars, Chart, Curve, Draw, Ink, Plot, Point, Scale};
use crate::published::experiment::PublishedTable;

const POLICIES: [&str; 4] = ["vanilla", "3.4.69", "altershift", "nowalk"];
const THREADS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Which of the thread counts has its outcomes set side by side: one thread a core.
const COMPARED: usize = 3;

/// Mean and standard deviation of the records a second.
#[derive(Clone)]
struct Rate {
    mean: f64,
    deviation: f64,
    /// The mean of each run.
    runs: Vec<f64>,
}

pub(super) fn produce(trial: &Trial) -> Result<Produced> {
    let plan = IterationPlan::new(trial)?;
    let mut outcomes = outcomes(trial, &plan)?;
    let lengths = 1e3 * trial.number("iteration_seconds")? / trial.number("iteration_length")?;
    let rate = |runs: &Vec<RunOutcome>| rate(trial, &plan, lengths, runs);
    let rates: Vec<[Rate; 4]> = outcomes.iter().map(|row| std::array::from_fn(|policy| rate(&row[policy]))).collect();
    let mut produced = Produced::default();
    for (threads, row) in THREADS.iter().zip(&rates) {
        for (policy, rate) in POLICIES.iter().zip(row) {
            let mean = trial.figure(&format!("mean, threads {threads}, {policy}"), rate.mean)?;
            produced.figures.push(mean.over(&rate.runs));
            produced.figures.push(trial.figure(&format!("stddev, threads {threads}, {policy}"), rate.deviation)?);
        }
        for (policy, name) in POLICIES.iter().enumerate().skip(1) {
            let gain = trial.figure(&format!("gain, threads {threads}, {name}"), gain(row, policy))?;
            produced.figures.push(gain.over(&gains_of_runs(row, policy)));
        }
    }
    let walk_free: Vec<_> = rates.iter().map(|row| 100.0 * (row[3].mean / row[2].mean - 1.0)).collect();
    let walk_free = mean_and_deviation(&walk_free).0;
    produced.figures.push(trial.figure("nowalk over altershift, mean of all thread counts", walk_free)?);
    produced.plots = vec![curves(trial, &rates)?, gains(trial, &rates)];
    let seconds = trial.number("iteration_length")? / 1e3;
    produced.facts = vec![("counted", plan.counted as f64), ("records", (rates[0][0].mean * seconds).round())];
    let row = outcomes.swap_remove(COMPARED);
    let first = row.into_iter().filter_map(|runs| runs.into_iter().next());
    let compared: Vec<_> = POLICIES.into_iter().zip(first).collect();
    produced.compared.push(trial.compare(&format!("ebizzy of 2013, {} threads", THREADS[COMPARED]), &compared));
    Ok(produced)
}

/// All runs by thread count and policy.
fn outcomes(trial: &Trial, plan: &IterationPlan) -> Result<Vec<Vec<Vec<RunOutcome>>>> {
    let mut runs = Vec::new();
    for threads in THREADS {
        for policy in POLICIES {
            for index in 0..plan.runs {
                runs.push(plan.run(trial, &trial.experiment.setup.workload, threads, policy, index)?);
            }
        }
    }
    let mut outcomes = execute_all(&runs)?.into_iter();
    let mut take = || outcomes.by_ref().take(plan.runs as usize).collect::<Vec<_>>();
    Ok(THREADS.iter().map(|_| POLICIES.iter().map(|_| take()).collect()).collect())
}

/// `lengths` is how many stretches an iteration of the document lasts.
fn rate(trial: &Trial, plan: &IterationPlan, lengths: f64, outcomes: &[RunOutcome]) -> Rate {
    let stretches: Vec<_> = outcomes.iter().map(|outcome| plan.rates(trial, outcome)).collect();
    let (mean, _) = mean_and_deviation(&stretches.concat());
    let runs = each(&stretches, |rates| mean_and_deviation(rates).0);
    Rate { mean, deviation: plan.deviation(&stretches, lengths), runs }
}

fn gain(row: &[Rate; 4], policy: usize) -> f64 {
    100.0 * (row[policy].mean / row[0].mean - 1.0)
}

/// The same of each run: two runs of one index have the same seed and the same user time of a record.
fn gains_of_runs(row: &[Rate; 4], policy: usize) -> Vec<f64> {
    row[policy].runs.iter().zip(&row[0].runs).map(|(ours, vanilla)| 100.0 * (ours / vanilla - 1.0)).collect()
}

fn curves(trial: &Trial, rates: &[[Rate; 4]]) -> Result<Plot> {
    let (means, deviations) = (trial.experiment.table("mean")?, trial.experiment.table("stddev")?);
    let mut curves = Vec::new();
    for (tone, id) in POLICIES.into_iter().enumerate() {
        let column =
            |table: &PublishedTable| table.column(id).with_context(|| format!("table {} has no column {id}", table.id));
        let published = column(means)?.into_iter().zip(column(deviations)?);
        let ours = rates.iter().map(|row| (row[tone].mean, row[tone].deviation));
        let point = |(&threads, (y, spread)): (&u64, (f64, f64))| Point { x: threads as f64, y, spread: Some(spread) };
        let curve =
            |ink, what: &str, points| Curve { label: format!("{id}, {what}"), ink, tone, draw: Draw::Both, points };
        curves.push(curve(Ink::Published, "published", THREADS.iter().zip(published).map(point).collect()));
        curves.push(curve(Ink::Ours, "ours", THREADS.iter().zip(ours).map(point).collect()));
    }
    Ok(Plot::Chart(Chart {
        title: "ebizzy: records a second against threads".into(),
        about: "Four policies with standard deviations, published and ours.".into(),
        x: Axis::new("threads", "", Scale::Around),
        y: Axis::new("rate", "records/s", Scale::Around),
        curves,
    }))
}

fn gains(trial: &Trial, rates: &[[Rate; 4]]) -> Plot {
    let group = |(threads, row): (&u64, &[Rate; 4])| BarGroup {
        label: threads.to_string(),
        values: vec![trial.published(&format!("gain, threads {threads}, nowalk")).ok(), Some(gain(row, 3))],
    };
    Plot::Bars(Bars {
        title: "Gain of nowalk over vanilla".into(),
        about: "Published and our gain for one to eight threads.".into(),
        x: "threads".into(),
        y: Axis::new("gain", "%", Scale::FromZero),
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups: THREADS.iter().zip(rates).map(group).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_over_vanilla() {
        let row = [100.0, 105.0, 110.0, 120.0].map(|mean| Rate { mean, deviation: 0.0, runs: vec![mean, 2.0 * mean] });
        assert!(gains_of_runs(&row, 2).iter().all(|gain| (gain - 10.0).abs() < 1e-9));
        assert!((gain(&row, 1) - 5.0).abs() < 1e-9 && (gain(&row, 2) - 10.0).abs() < 1e-9);
    }
}
