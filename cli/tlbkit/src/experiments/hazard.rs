//! A series of 2024: pairs of threads wake each other on all cores, under a kernel that counts who holds a space lazily
//! in one word, and under one that does not count.

use anyhow::Result;
use rayon::prelude::*;
use tlbkit_output::svg::{Axis, Chart, Plot, Scale};
use tlbkit_sim::RunOutcome;
use tlbkit_sim::statistics::mean;

use super::reproduction::{ByTasks, Produced, Reproduction, each, execute_series, of_first_seed, rate};
use crate::lab::difference::changes_pct;

const POLICIES: [&str; 2] = ["counted", "hazard"];

/// The quantity, by the number of pairs.
const CHANGE: ByTasks = ByTasks("change, threads ");

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let (counts, compared) = CHANGE.counts(reproduction)?;
    let outcomes = counts.par_iter().map(|&threads| outcomes(reproduction, threads)).collect::<Result<Vec<_>>>()?;
    let mut produced = Produced::default();
    let mut means = Vec::new();
    for (&threads, outcomes) in counts.iter().zip(&outcomes) {
        let rates: Vec<Vec<f64>> = outcomes.iter().map(|seeds| each(seeds, rate)).collect();
        let change = changes_pct(&rates[0], &rates[1]);
        produced.figures.push(reproduction.mean(&CHANGE.name(threads), &change)?);
        means.push(mean(&change));
    }
    produced.plots.push(plot(reproduction, &counts, &means)?);
    let full = counts.iter().zip(outcomes).find(|(threads, _)| **threads == compared);
    let first = of_first_seed(POLICIES, full.into_iter().flat_map(|(_, outcomes)| outcomes));
    produced
        .compared
        .push(reproduction.compare(&format!("{}, {compared} pairs", reproduction.experiment.setup.workload), &first));
    Ok(produced)
}

/// Under each policy a run for each seed, on all CPUs of the machine.
fn outcomes(reproduction: &Reproduction, threads: u64) -> Result<Vec<Vec<RunOutcome>>> {
    let workload = reproduction.workload(&[format!("threads={threads}")])?;
    let runs = |policy| reproduction.seeds(&reproduction.run_of_length(policy, workload)?);
    execute_series(&POLICIES.map(runs).into_iter().collect::<Result<Vec<_>>>()?)
}

fn plot(reproduction: &Reproduction, counts: &[u64], ours: &[f64]) -> Result<Plot> {
    Ok(Plot::Chart(Chart {
        title: "What pairs of threads gain where nobody counts who holds their space lazily".into(),
        about: "Switches a second of all pairs together, compared; published and ours.".into(),
        x: Axis::new("pairs", "", Scale::Log),
        y: Axis::new("change", "%", Scale::FromZero),
        curves: CHANGE.curves(reproduction, counts, ours)?,
    }))
}

#[cfg(test)]
mod tests {
    use tlbkit_machine::Machine;

    use super::super::reproduction::FIRST_SEED;
    use super::*;
    use crate::experiments::ALL;

    #[test]
    fn the_file_has_a_change_for_each_number_and_policies_that_differ_in_the_count_alone() {
        let experiment = ALL.iter().find(|experiment| experiment.id == "hazard").unwrap().read().unwrap();
        let machine = Machine::builtin(&experiment.setup.machine).unwrap();
        let mut reproduction = Reproduction { experiment, machine, first_seed: FIRST_SEED };
        let (numbers, compared) = CHANGE.counts(&reproduction).unwrap();
        assert_eq!((numbers.len(), compared), (reproduction.experiment.expected.len(), 192));
        assert!(reproduction.notes(&[]).is_ok(), "a note names a number that is not there");
        let workload = reproduction.workload(&[]).unwrap();
        let [counted, mut hazard] = POLICIES.map(|policy| reproduction.run(policy, workload).unwrap().policy);
        assert_ne!(counted, hazard);
        hazard.lazy_references = counted.lazy_references;
        assert_eq!(counted, hazard);
        reproduction.experiment.expected.retain(|expected| expected.quantity != "change, threads 192");
        let error = CHANGE.counts(&reproduction).unwrap_err().to_string();
        assert_eq!(error, "compared = 192: the file expects no `change, threads 192`");
    }
}
