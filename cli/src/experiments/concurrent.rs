//! A series of 2019: one thread gives back a page at a time, alone or beside one that spins, with the initiator's own
//! flush before that of the others or beside it.

use anyhow::Result;
use tlbkit_sim::{Run, RunOutcome};

use super::trial::{Produced, Trial, execute_all};
use crate::output::svg::{Axis, BarGroup, Bars, Ink, Plot, Scale};

const POLICIES: [&str; 2] = ["serial", "concurrent"];
const THREADS: [usize; 2] = [1, 2];

pub(super) fn produce(trial: &Trial) -> Result<Produced> {
    let mut outcomes = THREADS.map(|threads| outcomes(trial, threads)).into_iter().collect::<Result<Vec<_>>>()?;
    let mut produced = Produced::default();
    for (threads, row) in THREADS.iter().zip(&outcomes) {
        for (policy, outcome) in POLICIES.iter().zip(row) {
            produced.figures.push(trial.figure(&format!("time, threads {threads}, {policy}"), nanoseconds(outcome))?);
        }
    }
    let [alone, pair] = [0, 1].map(|index| [0, 1].map(|policy| nanoseconds(&outcomes[index][policy])));
    produced.figures.push(trial.figure("time, threads 2, concurrent over serial", 100.0 * (pair[1] / pair[0] - 1.0))?);
    produced.figures.push(trial.figure("one more thread, serial", pair[0] - alone[0])?);
    produced.plots.push(plot(trial, [alone, pair]));
    let compared: Vec<_> = POLICIES.into_iter().zip(outcomes.swap_remove(1)).collect();
    produced.compared.push(trial.compare("madvise1, 2 threads", &compared));
    Ok(produced)
}

/// A run under each policy, with a CPU for each thread.
fn outcomes(trial: &Trial, threads: usize) -> Result<Vec<RunOutcome>> {
    let workload = trial.workload(&[format!("threads={threads}")])?;
    let limit_cycles = Some(trial.milliseconds(trial.number("length")?));
    let run = |policy: &&str| Ok(Run { cpus: threads, limit_cycles, ..trial.run(policy, workload)? });
    execute_all(&POLICIES.iter().map(run).collect::<Result<Vec<_>>>()?)
}

/// Of one page: given back, and touched again.
fn nanoseconds(outcome: &RunOutcome) -> f64 {
    1e9 * outcome.elapsed_seconds / outcome.score as f64
}

fn plot(trial: &Trial, ours: [[f64; 2]; 2]) -> Plot {
    let group = |(threads, ours): (&usize, [f64; 2])| {
        let published = POLICIES.map(|policy| trial.published(&format!("time, threads {threads}, {policy}")).ok());
        let label = |policy: &str| format!("{threads}, {policy}");
        [0, 1]
            .map(|index| BarGroup { label: label(POLICIES[index]), values: vec![published[index], Some(ours[index])] })
    };
    Plot::Bars(Bars {
        title: "Time of a page given back and touched".into(),
        about: "One thread and two, serial and concurrent, published and ours.".into(),
        x: "threads and policy".into(),
        y: Axis::new("time", "ns", Scale::FromZero),
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups: THREADS.iter().zip(ours).flat_map(group).collect(),
    })
}
