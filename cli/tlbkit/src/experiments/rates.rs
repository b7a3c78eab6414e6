//! Rates of a benchmark by its number of threads, each on a core of its own as long as there are cores: as many threads
//! as the experiment's file expects rates of.

use anyhow::Result;
use rayon::prelude::*;
use tlbkit_output::svg::{Axis, Chart, Plot, Scale};
use tlbkit_sim::run::Start;
use tlbkit_sim::statistics::mean;
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{ByTasks, Produced, Reproduction, each, execute_all, rate};
use crate::published::experiment::PublishedSetup;

const POLICY: &str = "linux";

/// The quantity that is a rate.
pub(super) const RATE: ByTasks = ByTasks("rate, threads ");

/// The rate for each number of threads, in thousands a second, on all CPUs of the machine.
pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let (threads, compared) = RATE.counts(reproduction)?;
    let outcomes = threads.par_iter().map(|&threads| outcomes(reproduction, threads)).collect::<Result<Vec<_>>>()?;
    let mut produced = Produced::default();
    let mut means = Vec::new();
    for (&threads, outcomes) in threads.iter().zip(&outcomes) {
        let rates = each(outcomes, thousands);
        produced.figures.push(reproduction.mean(&RATE.name(threads), &rates)?);
        means.push(mean(&rates));
    }
    produced.plots.push(plot(reproduction, &threads, &means)?);
    let full = threads.iter().zip(outcomes).find(|(threads, _)| **threads == compared);
    let full = full.and_then(|(_, outcomes)| outcomes.into_iter().next()).map(|outcome| (POLICY, outcome));
    let title = format!("{}, {} threads", reproduction.experiment.setup.workload, compared);
    produced.compared.push(reproduction.compare(&title, &Vec::from_iter(full)));
    Ok(produced)
}

/// Runs of one length with all seeds. As long as the start of one of them was not over, or its threads did not do as
/// much as they go through in turn, all are made again, longer.
fn outcomes(reproduction: &Reproduction, threads: u64) -> Result<Vec<RunOutcome>> {
    let workload = reproduction.workload(&[format!("threads={threads}")])?;
    let run = reproduction.run_with_samples(POLICY, workload)?;
    let longest = reproduction.milliseconds(reproduction.number("longest")?);
    let whole = reproduction.number("least")? as u64 * threads;
    let mut length = reproduction.milliseconds(reproduction.number("length")?);
    loop {
        let outcomes = execute_all(&reproduction.seeds(&Run { limit_cycles: Some(length), ..run.clone() })?)?;
        let longer = outcomes.iter().map(|outcome| times_as_long(outcome, whole)).max().unwrap_or(1);
        match next_length(length, longer, longest) {
            Some(next) => length = next,
            None => return Ok(outcomes),
        }
    }
}

/// The length of the runs that follow runs of `length`, which should have been `longer` times as long; none if these
/// were long enough, or as long as is allowed.
fn next_length(length: u64, longer: u64, longest: u64) -> Option<u64> {
    let next = length.saturating_mul(longer).min(longest);
    (next > length).then_some(next)
}

/// How many times as long the run should have been, to go through `whole` units and beyond its start.
fn times_as_long(outcome: &RunOutcome, whole: u64) -> u64 {
    let is_over = outcome.start != Start::NotOver;
    whole.div_ceil(outcome.score.max(1)).max(if is_over { 1 } else { 2 })
}

fn thousands(outcome: &RunOutcome) -> f64 {
    rate(outcome) / 1e3
}

fn plot(reproduction: &Reproduction, threads: &[u64], ours: &[f64]) -> Result<Plot> {
    let PublishedSetup { workload, machine, .. } = &reproduction.experiment.setup;
    Ok(Plot::Chart(Chart {
        title: format!("{workload}: pages a second against threads, {machine}"),
        about: "Pages a second of all threads together, published and ours.".into(),
        x: Axis::new("threads", "", Scale::Around),
        y: Axis::new("rate", "k pages/s", Scale::FromZero),
        curves: RATE.curves(reproduction, threads, ours)?,
    }))
}

#[cfg(test)]
mod tests {
    use tlbkit_machine::Machine;

    use super::super::reproduction::FIRST_SEED;
    use super::*;
    use crate::experiments::ALL;

    #[test]
    fn a_run_is_made_as_many_times_as_long_as_its_units_ask_and_twice_if_its_start_was_not_over() {
        let milan = ALL.iter().find(|experiment| experiment.id == "milan").unwrap();
        let machine = Machine::builtin("milan-36core").unwrap();
        let reproduction = Reproduction { experiment: milan.read().unwrap(), machine, first_seed: FIRST_SEED };
        let workload = reproduction.workload(&["threads=1".to_owned(), "rounds=1".to_owned()]).unwrap();
        let outcome = Run { cpus: 1, ..reproduction.run(POLICY, workload).unwrap() }.execute().unwrap();
        let times = |score, start, whole| times_as_long(&RunOutcome { score, start, ..outcome.clone() }, whole);
        assert_eq!(times(100, Start::NotAsked, 100), 1);
        assert_eq!(times(100, Start::NotAsked, 101), 2);
        assert_eq!(times(100, Start::NotAsked, 1000), 10);
        assert_eq!(times(0, Start::NotAsked, 7), 7, "a run that did nothing");
        assert_eq!(times(100, Start::NotOver, 100), 2);
        assert_eq!(times(100, Start::NotOver, 1000), 10, "what is asked for more is enough");
    }

    #[test]
    fn runs_are_made_longer_up_to_the_longest_that_is_allowed_and_not_beyond() {
        assert_eq!(next_length(5, 1, 80), None, "long enough");
        assert_eq!(next_length(5, 3, 80), Some(15));
        assert_eq!(next_length(15, 7, 80), Some(80), "it should have been 105");
        assert_eq!(next_length(80, 2, 80), None, "as long as is allowed");
        assert_eq!(next_length(100, 2, 80), None, "longer than is allowed from the beginning");
        assert_eq!(next_length(5, u64::MAX, 80), Some(80), "a run that did nothing");
    }
}
