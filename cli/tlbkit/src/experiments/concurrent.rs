//! A series of 2019: one thread gives back a page at a time, alone or beside one that spins, with the initiator's own
//! flush before that of the others or beside it.

use anyhow::Result;
use tlbkit_output::svg::{Axis, BarGroup, Bars, Ink, Plot, Scale};
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Produced, Reproduction, each, execute_series, of_first_seed, rate};
use crate::lab::difference::changes_pct;

const POLICIES: [&str; 2] = ["serial", "concurrent"];
const THREADS: [usize; 3] = [1, 2, 4];

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let outcomes = THREADS.map(|threads| outcomes(reproduction, threads)).into_iter().collect::<Result<Vec<_>>>()?;
    let times: Vec<Vec<_>> =
        outcomes.iter().map(|row| row.iter().map(|seeds| each(seeds, nanoseconds)).collect()).collect();
    let mut produced = Produced::default();
    let mut means = [[0.0; POLICIES.len()]; THREADS.len()];
    for (row, threads) in THREADS.iter().enumerate() {
        for (column, policy) in POLICIES.iter().enumerate() {
            let figure = reproduction.mean(&format!("time, threads {threads}, {policy}"), &times[row][column])?;
            means[row][column] = figure.ours.unwrap_or(f64::NAN);
            produced.figures.push(figure);
        }
    }
    for (row, threads) in THREADS.iter().enumerate().skip(1) {
        let change = changes_pct(&times[row][0], &times[row][1]);
        produced.figures.push(reproduction.mean(&format!("time, threads {threads}, concurrent over serial"), &change)?);
    }
    for (row, more) in ["one more thread, serial", "two more threads, serial"].into_iter().enumerate() {
        let pairs = times[row][0].iter().zip(&times[row + 1][0]);
        let more_ns: Vec<_> = pairs.map(|(fewer, more)| more - fewer).collect();
        produced.figures.push(reproduction.mean(more, &more_ns)?);
    }
    produced.plots.push(plot(reproduction, means));
    let two_threads = outcomes.into_iter().nth(1).unwrap_or_default();
    produced.compared.push(reproduction.compare("madvise1, 2 threads", &of_first_seed(POLICIES, two_threads)));
    Ok(produced)
}

/// Runs under each policy, a seed each, with a CPU for each thread.
fn outcomes(reproduction: &Reproduction, threads: usize) -> Result<Vec<Vec<RunOutcome>>> {
    let workload = reproduction.workload(&[format!("threads={threads}")])?;
    let run =
        |policy: &&str| reproduction.seeds(&Run { cpus: threads, ..reproduction.run_of_length(policy, workload)? });
    let series = POLICIES.iter().map(run);
    execute_series(&series.collect::<Result<Vec<_>>>()?)
}

/// How long it takes to give one page back and touch it again.
fn nanoseconds(outcome: &RunOutcome) -> f64 {
    1e9 / rate(outcome)
}

fn plot(reproduction: &Reproduction, ours: [[f64; POLICIES.len()]; THREADS.len()]) -> Plot {
    let group = |(threads, ours): (&usize, [f64; 2])| {
        let published =
            POLICIES.map(|policy| reproduction.published(&format!("time, threads {threads}, {policy}")).ok());
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
