//! Iterations of a benchmark, as stretches of runs: measured from unit to unit, without the first of each run, in which
//! threads start and find their order at the locks.
//!
//! ebizzy draws no random numbers, so runs differ in what they compute: each has its own user time of a record, evenly
//! from the range that was measured. Runs of one index share it, whatever their policy.

use anyhow::{Result, ensure};
use tlbkit_sim::observer::Sample;
use tlbkit_sim::statistics::{mean, standard_deviation};
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Reproduction, each};

/// How the iterations of the document are made of runs.
pub(super) struct IterationPlan {
    pub(super) runs: u64,
    /// Iterations of a run that count.
    pub(super) counted: u64,
    /// Iterations before these, which do not count.
    dropped: u64,
    iteration_cycles: u64,
}

impl IterationPlan {
    pub(super) fn new(reproduction: &Reproduction) -> Result<Self> {
        let (iterations, runs) = (reproduction.number("iterations")? as u64, reproduction.number("runs")? as u64);
        ensure!(runs > 0 && iterations % runs == 0, "{iterations} iterations do not make {runs} equal runs");
        Ok(Self {
            runs,
            counted: iterations / runs,
            dropped: reproduction.number("iterations_dropped")? as u64,
            iteration_cycles: reproduction.milliseconds(reproduction.number("iteration_length")?),
        })
    }

    /// The run of this index, of the workload called `name` with `settings`, under the policy at the place `policy`.
    pub(super) fn run<'l>(
        &self,
        reproduction: &'l Reproduction,
        name: &str,
        settings: &[String],
        policy: usize,
        index: u64,
    ) -> Result<Run<'l>> {
        let record_cycles = format!("record_cycles={}", record_cycles(reproduction, index, self.runs)?);
        let limit_cycles = Some(self.iteration_cycles * (self.dropped + self.counted));
        let sample_cycles = Some(self.iteration_cycles);
        let workload = reproduction.workload_called(name, &[settings, &[record_cycles]].concat())?;
        let seed = reproduction.seeds_of(self.runs).start + index;
        Ok(Run { seed, limit_cycles, sample_cycles, ..reproduction.run(policy, workload)? })
    }

    /// Records a second of each iteration that counts.
    pub(super) fn rates(&self, reproduction: &Reproduction, outcome: &RunOutcome) -> Vec<f64> {
        let start = Sample { cycles: 0, score: 0 };
        let samples: Vec<_> = std::iter::once(&start).chain(&outcome.samples).skip(self.dropped as usize).collect();
        let cycles_a_second = reproduction.milliseconds(1e3) as f64;
        let rate = |pair: &[&Sample]| {
            cycles_a_second * (pair[1].score - pair[0].score) as f64 / (pair[1].cycles - pair[0].cycles) as f64
        };
        samples.windows(2).map(rate).collect()
    }

    /// Standard deviation of the rates of iterations that last `lengths` stretches, from the rates of each run's.
    ///
    /// A rate varies from run to run, and within a run from stretch to stretch. The variance between runs does not
    /// depend on how long an iteration is. The variance within a run is divided by the number of stretches of an
    /// iteration, which are taken to be independent of each other. The two are told apart as in an analysis of variance
    /// of one factor: the variance of the means of runs is the sum of the former and of the latter divided by the
    /// number of stretches.
    pub(super) fn deviation(&self, stretches: &[Vec<f64>], lengths: f64) -> f64 {
        let squares = |values: &[f64]| standard_deviation(values).powi(2);
        let within = mean(&each(stretches, |rates| squares(rates)));
        let of_means = squares(&each(stretches, |rates| mean(rates)));
        let between = (of_means - within / self.counted as f64).max(0.0);
        (between + within / lengths).sqrt()
    }
}

/// The user time of a record in this run: the middle of its share of the range.
fn record_cycles(reproduction: &Reproduction, index: u64, runs: u64) -> Result<u64> {
    let (low, high) = (reproduction.number("record_least")?, reproduction.number("record_most")?);
    let record_us = low + (high - low) * (index as f64 + 0.5) / runs as f64;
    Ok(reproduction.milliseconds(record_us / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;

    fn reproduction() -> Reproduction {
        Reproduction::new(builtin("range")).unwrap()
    }

    #[test]
    fn runs_cover_the_measured_range_evenly() {
        let reproduction = reproduction();
        let cycles: Vec<_> = (0..2).map(|index| record_cycles(&reproduction, index, 2).unwrap()).collect();
        // A quarter and three quarters of the way from 22.6 to 24.3 us, at 3.4 GHz.
        assert_eq!(cycles, [78_285, 81_175]);
    }

    #[test]
    fn what_differs_within_a_run_counts_less_the_longer_an_iteration_is() {
        let plan = IterationPlan { runs: 2, counted: 2, dropped: 0, iteration_cycles: 1 };
        // Runs alike, whose stretches differ by 4 to either side: only those are seen, less in four times as long.
        let alike = [vec![96.0, 104.0], vec![104.0, 96.0]];
        assert_eq!([1.0, 4.0].map(|lengths| plan.deviation(&alike, lengths)), [32f64.sqrt(), 8f64.sqrt()]);
        // Runs that differ, each going at one pace.
        assert_eq!(plan.deviation(&[vec![98.0, 98.0], vec![102.0, 102.0]], 1e6), 8f64.sqrt());
    }

    #[test]
    fn the_document_s_iterations_are_made_of_equal_runs_and_the_first_of_each_are_dropped() {
        let reproduction = reproduction();
        let plan = IterationPlan::new(&reproduction).unwrap();
        assert_eq!(plan.runs * plan.counted, 100);
        let plan = IterationPlan { runs: 1, counted: 2, dropped: 1, iteration_cycles: reproduction.milliseconds(1.0) };
        let outcome = plan.run(&reproduction, "ebizzy-2013", &["threads=1".into()], 3, 0).unwrap().execute().unwrap();
        let rates = plan.rates(&reproduction, &outcome);
        assert_eq!((outcome.samples.len(), rates.len()), (3, 2));
        // Without those of its start, a run of one thread goes at one pace.
        assert!((rates[0] / rates[1] - 1.0).abs() < 0.001, "{rates:?}");
    }
}
