//! Document 004, and a letter that followed it: threads that fill and free buffers, under several rules for flushing a
//! range.
//!
//! The file says which policies and which thread counts; all gains are over its first policy. The document's iterations
//! are stretches of our runs: see `iterations`.

use anyhow::{Context, Result, ensure};
use tlbkit_output::svg::{Axis, BarGroup, Bars, Chart, Curve, Draw, Ink, Plot, Point, Scale};
use tlbkit_sim::RunOutcome;
use tlbkit_sim::statistics::mean;

use super::iterations::IterationPlan;
use super::reproduction::{Produced, Reproduction, each, execute_all, of_first_seed};
use crate::lab::difference::{change_pct, changes_pct};
use crate::published::experiment::PublishedTable;

/// Which of the thread counts has its outcomes set side by side: one thread for each two CPUs of the larger machine.
const COMPARED: usize = 3;
/// The policy whose gain is drawn.
const DRAWN: &str = "nowalk";

/// Mean and standard deviation of the records a second.
#[derive(Clone)]
struct Rate {
    mean: f64,
    deviation: f64,
    /// The mean of each run.
    runs: Vec<f64>,
}

/// What runs: the columns and the rows of the document's tables.
struct Rows {
    policies: Vec<String>,
    threads: Vec<u64>,
}

impl Rows {
    fn of(reproduction: &Reproduction) -> Result<Self> {
        let policies: Vec<_> = reproduction.experiment.setup.policies.iter().map(|policy| policy.id.clone()).collect();
        let threads = reproduction.experiment.table("mean")?.rows.iter().map(|row| row[0] as u64).collect::<Vec<_>>();
        ensure!(policies.len() > 1 && threads.len() > COMPARED, "the file has too few policies or thread counts");
        Ok(Self { policies, threads })
    }

    fn place(&self, policy: &str) -> Option<usize> {
        self.policies.iter().position(|name| name == policy)
    }
}

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let plan = IterationPlan::new(reproduction)?;
    let rows = Rows::of(reproduction)?;
    let mut outcomes = outcomes(reproduction, &plan, &rows)?;
    let lengths = 1e3 * reproduction.number("iteration_seconds")? / reproduction.number("iteration_length")?;
    let rate = |runs: &Vec<RunOutcome>| rate(reproduction, &plan, lengths, runs);
    let rates: Vec<Vec<Rate>> = outcomes.iter().map(|row| row.iter().map(rate).collect()).collect();
    let mut produced = Produced::default();
    for (threads, row) in rows.threads.iter().zip(&rates) {
        for (policy, rate) in rows.policies.iter().zip(row) {
            let mean = reproduction.figure(&format!("mean, threads {threads}, {policy}"), rate.mean)?;
            produced.figures.push(mean.over(&rate.runs));
            produced
                .figures
                .push(reproduction.figure(&format!("stddev, threads {threads}, {policy}"), rate.deviation)?);
        }
        for (policy, name) in rows.policies.iter().enumerate().skip(1) {
            let gain = reproduction.figure(&format!("gain, threads {threads}, {name}"), gain(row, policy))?;
            produced.figures.push(gain.over(&gains_of_runs(row, policy)));
        }
    }
    if let (Some(walk), Some(no_walk)) = (rows.place("altershift"), rows.place("nowalk")) {
        let walk_free: Vec<_> = rates.iter().map(|row| change_pct(row[walk].mean, row[no_walk].mean)).collect();
        produced
            .figures
            .push(reproduction.figure("nowalk over altershift, mean of all thread counts", mean(&walk_free))?);
    }
    produced.plots = vec![curves(reproduction, &rows, &rates)?, gains(reproduction, &rows, &rates)?];
    let seconds = reproduction.number("iteration_length")? / 1e3;
    produced.facts = vec![("counted", plan.counted as f64), ("records", (rates[0][0].mean * seconds).round())];
    let row = outcomes.swap_remove(COMPARED);
    let compared = of_first_seed(rows.policies.iter().map(String::as_str), row);
    produced
        .compared
        .push(reproduction.compare(&format!("ebizzy of 2013, {} threads", rows.threads[COMPARED]), &compared));
    Ok(produced)
}

/// All runs by thread count and policy.
fn outcomes(reproduction: &Reproduction, plan: &IterationPlan, rows: &Rows) -> Result<Vec<Vec<Vec<RunOutcome>>>> {
    let mut runs = Vec::new();
    for &threads in &rows.threads {
        for policy in &rows.policies {
            for index in 0..plan.runs {
                runs.push(plan.run(reproduction, &reproduction.experiment.setup.workload, threads, policy, index)?);
            }
        }
    }
    let mut outcomes = execute_all(&runs)?.into_iter();
    let mut take = || outcomes.by_ref().take(plan.runs as usize).collect::<Vec<_>>();
    Ok(rows.threads.iter().map(|_| rows.policies.iter().map(|_| take()).collect()).collect())
}

/// `lengths` is how many stretches an iteration of the document lasts.
fn rate(reproduction: &Reproduction, plan: &IterationPlan, lengths: f64, outcomes: &[RunOutcome]) -> Rate {
    let stretches: Vec<_> = outcomes.iter().map(|outcome| plan.rates(reproduction, outcome)).collect();
    Rate {
        mean: mean(&stretches.concat()),
        deviation: plan.deviation(&stretches, lengths),
        runs: each(&stretches, |rates| mean(rates)),
    }
}

fn gain(row: &[Rate], policy: usize) -> f64 {
    change_pct(row[0].mean, row[policy].mean)
}

/// The gain of each run: two runs of one index have the same seed and the same user time of a record.
fn gains_of_runs(row: &[Rate], policy: usize) -> Vec<f64> {
    changes_pct(&row[0].runs, &row[policy].runs)
}

fn curves(reproduction: &Reproduction, rows: &Rows, rates: &[Vec<Rate>]) -> Result<Plot> {
    let (means, deviations) = (reproduction.experiment.table("mean")?, reproduction.experiment.table("stddev")?);
    let mut curves = Vec::new();
    for (tone, id) in rows.policies.iter().enumerate() {
        let column =
            |table: &PublishedTable| table.column(id).with_context(|| format!("table {} has no column {id}", table.id));
        let published = column(means)?.into_iter().zip(column(deviations)?);
        let ours = rates.iter().map(|row| (row[tone].mean, row[tone].deviation));
        let point = |(&threads, (y, spread)): (&u64, (f64, f64))| Point { x: threads as f64, y, spread: Some(spread) };
        let curve =
            |ink, what: &str, points| Curve { label: format!("{id}, {what}"), ink, tone, draw: Draw::Both, points };
        curves.push(curve(Ink::Published, "published", rows.threads.iter().zip(published).map(point).collect()));
        curves.push(curve(Ink::Ours, "ours", rows.threads.iter().zip(ours).map(point).collect()));
    }
    Ok(Plot::Chart(Chart {
        title: "ebizzy: records a second against threads".into(),
        about: "Policies with standard deviations, published and ours.".into(),
        x: Axis::new("threads", "", Scale::Around),
        y: Axis::new("rate", "records/s", Scale::Around),
        curves,
    }))
}

fn gains(reproduction: &Reproduction, rows: &Rows, rates: &[Vec<Rate>]) -> Result<Plot> {
    let place = rows.place(DRAWN).with_context(|| format!("the file has no policy {DRAWN}"))?;
    let group = |(threads, row): (&u64, &Vec<Rate>)| BarGroup {
        label: threads.to_string(),
        values: vec![reproduction.published(&format!("gain, threads {threads}, {DRAWN}")).ok(), Some(gain(row, place))],
    };
    Ok(Plot::Bars(Bars {
        title: format!("Gain of {DRAWN} over {}", rows.policies[0]),
        about: "Published and our gain by thread count.".into(),
        x: "threads".into(),
        y: Axis::new("gain", "%", Scale::FromZero),
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups: rows.threads.iter().zip(rates).map(group).collect(),
    }))
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
