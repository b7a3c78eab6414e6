//! A series of 2024: pairs of threads wake each other on all cores, under a kernel that counts who holds a space lazily
//! in one word, and under one that does not count.

use anyhow::Result;
use rayon::prelude::*;
use tlbkit_sim::{Run, RunOutcome};

use super::curve::ByTasks;
use super::trial::{Produced, Trial, each, execute_series, mean_and_deviation, rate};
use crate::output::svg::{Axis, Chart, Plot, Scale};

const POLICIES: [&str; 2] = ["counted", "hazard"];

/// The quantity, for so many pairs.
const CHANGE: ByTasks = ByTasks("change, threads ");

pub(super) fn produce(trial: &Trial) -> Result<Produced> {
    let (counts, compared) = CHANGE.counts(trial)?;
    let outcomes = counts.par_iter().map(|&threads| outcomes(trial, threads)).collect::<Result<Vec<_>>>()?;
    let mut produced = Produced::default();
    let mut means = Vec::new();
    for (&threads, outcomes) in counts.iter().zip(&outcomes) {
        let rates: Vec<Vec<f64>> = outcomes.iter().map(|seeds| each(seeds, rate)).collect();
        let pairs = rates[0].iter().zip(&rates[1]);
        let change: Vec<f64> = pairs.map(|(counted, hazard)| 100.0 * (hazard / counted - 1.0)).collect();
        produced.figures.push(trial.mean(&CHANGE.name(threads), &change)?);
        means.push(mean_and_deviation(&change).0);
    }
    produced.plots.push(plot(trial, &counts, &means)?);
    let full = counts.iter().zip(outcomes).find(|(threads, _)| **threads == compared);
    let first = full.into_iter().flat_map(|(_, outcomes)| outcomes).filter_map(|seeds| seeds.into_iter().next());
    let first: Vec<(&str, RunOutcome)> = POLICIES.into_iter().zip(first).collect();
    produced.compared.push(trial.compare(&format!("{}, {compared} pairs", trial.experiment.setup.workload), &first));
    Ok(produced)
}

/// Under each policy a run for each seed, on all CPUs of the machine.
fn outcomes(trial: &Trial, threads: u64) -> Result<Vec<Vec<RunOutcome>>> {
    let workload = trial.workload(&[format!("threads={threads}")])?;
    let limit_cycles = Some(trial.milliseconds(trial.number("length")?));
    let sample_cycles = Some(trial.milliseconds(trial.number("stretch")?));
    let runs = |policy| trial.seeds(&Run { limit_cycles, sample_cycles, ..trial.run(policy, workload)? });
    execute_series(&POLICIES.map(runs).into_iter().collect::<Result<Vec<_>>>()?)
}

fn plot(trial: &Trial, counts: &[u64], ours: &[f64]) -> Result<Plot> {
    Ok(Plot::Chart(Chart {
        title: "What pairs of threads gain where nobody counts who holds their space lazily".into(),
        about: "Switches a second of all pairs together, compared; published and ours.".into(),
        x: Axis::new("pairs", "", Scale::Log),
        y: Axis::new("change", "%", Scale::FromZero),
        curves: CHANGE.curves(trial, counts, ours)?,
    }))
}

#[cfg(test)]
mod tests {
    use tlbkit_sim::machine::Machine;

    use super::super::trial::FIRST_SEED;
    use super::*;
    use crate::experiments::ALL;

    #[test]
    fn the_file_has_a_change_for_each_number_and_policies_that_differ_in_the_count_alone() {
        let experiment = ALL.iter().find(|experiment| experiment.id == "hazard").unwrap().read().unwrap();
        let machine = Machine::builtin(&experiment.setup.machine).unwrap();
        let mut trial = Trial { experiment, machine, first_seed: FIRST_SEED };
        let (numbers, compared) = CHANGE.counts(&trial).unwrap();
        assert_eq!((numbers.len(), compared), (trial.experiment.expected.len(), 192));
        assert!(trial.notes(&[]).is_ok(), "a note names a number that is not there");
        let workload = trial.workload(&[]).unwrap();
        let [counted, mut hazard] = POLICIES.map(|policy| trial.run(policy, workload).unwrap().policy);
        assert_ne!(counted, hazard);
        hazard.lazy_references = counted.lazy_references;
        assert_eq!(counted, hazard);
        trial.experiment.expected.retain(|expected| expected.quantity != "change, threads 192");
        let error = CHANGE.counts(&trial).unwrap_err().to_string();
        assert_eq!(error, "compared = 192: the file expects no `change, threads 192`");
    }
}
