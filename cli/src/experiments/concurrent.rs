//! A series of 2019: one thread gives back a page at a time, alone or beside one that spins, with the initiator's own
//! flush before that of the others or beside it.

use anyhow::Result;
use tlbkit_sim::{Run, RunOutcome};

use super::trial::{Produced, Trial, each, execute_series, rate};
use crate::output::svg::{Axis, BarGroup, Bars, Ink, Plot, Scale};

const POLICIES: [&str; 2] = ["serial", "concurrent"];
const THREADS: [usize; 3] = [1, 2, 4];

pub(super) fn produce(trial: &Trial) -> Result<Produced> {
    let outcomes = THREADS.map(|threads| outcomes(trial, threads)).into_iter().collect::<Result<Vec<_>>>()?;
    let times: Vec<Vec<_>> =
        outcomes.iter().map(|row| row.iter().map(|seeds| each(seeds, nanoseconds)).collect()).collect();
    let mut produced = Produced::default();
    let mut means = [[0.0; POLICIES.len()]; THREADS.len()];
    for (row, threads) in THREADS.iter().enumerate() {
        for (column, policy) in POLICIES.iter().enumerate() {
            let figure = trial.mean(&format!("time, threads {threads}, {policy}"), &times[row][column])?;
            means[row][column] = figure.ours.unwrap_or(f64::NAN);
            produced.figures.push(figure);
        }
    }
    for (row, threads) in THREADS.iter().enumerate().skip(1) {
        let change = pairs(&times[row][0], &times[row][1], |serial, concurrent| 100.0 * (concurrent / serial - 1.0));
        produced.figures.push(trial.mean(&format!("time, threads {threads}, concurrent over serial"), &change)?);
    }
    for (row, more) in ["one more thread, serial", "two more threads, serial"].into_iter().enumerate() {
        let more_ns = pairs(&times[row][0], &times[row + 1][0], |fewer, more| more - fewer);
        produced.figures.push(trial.mean(more, &more_ns)?);
    }
    produced.plots.push(plot(trial, means));
    let first = outcomes.into_iter().nth(1).into_iter().flatten().filter_map(|seeds| seeds.into_iter().next());
    let compared: Vec<_> = POLICIES.into_iter().zip(first).collect();
    produced.compared.push(trial.compare("madvise1, 2 threads", &compared));
    Ok(produced)
}

/// What `of` makes of the two samples of each seed.
fn pairs(one: &[f64], other: &[f64], of: fn(f64, f64) -> f64) -> Vec<f64> {
    one.iter().zip(other).map(|(&one, &other)| of(one, other)).collect()
}

/// Runs under each policy, a seed each, with a CPU for each thread.
fn outcomes(trial: &Trial, threads: usize) -> Result<Vec<Vec<RunOutcome>>> {
    let workload = trial.workload(&[format!("threads={threads}")])?;
    let limit_cycles = Some(trial.milliseconds(trial.number("length")?));
    let sample_cycles = Some(trial.milliseconds(trial.number("stretch")?));
    let run = |policy: &&str| {
        trial.seeds(&Run { cpus: threads, limit_cycles, sample_cycles, ..trial.run(policy, workload)? })
    };
    let series = POLICIES.iter().map(run);
    execute_series(&series.collect::<Result<Vec<_>>>()?)
}

/// Of one page: given back, and touched again.
fn nanoseconds(outcome: &RunOutcome) -> f64 {
    1e9 / rate(outcome)
}

fn plot(trial: &Trial, ours: [[f64; POLICIES.len()]; THREADS.len()]) -> Plot {
    let group = |(threads, ours): (&usize, [f64; 2])| {
        let published = POLICIES.map(|policy| trial.published(&format!("time, threads {threads}, {policy}")).ok());
        // Six labels stand side by side: a letter for each policy.
        let label = |policy: &str| format!("{threads} {}", policy[..1].to_uppercase());
        [0, 1]
            .map(|index| BarGroup { label: label(POLICIES[index]), values: vec![published[index], Some(ours[index])] })
    };
    Plot::Bars(Bars {
        title: "Time of a page given back and touched".into(),
        about: "One thread, two and four, serial and concurrent, published and ours.".into(),
        x: "threads; S serial, C concurrent".into(),
        y: Axis::new("time", "ns", Scale::FromZero),
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups: THREADS.iter().zip(ours).flat_map(group).collect(),
    })
}
