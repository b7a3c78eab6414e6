//! The rate of a run without its start, by a rule that looks at nothing but the rates themselves.
//!
//! The rule is MSER (K. P. White, "An effective truncation heuristic for bias reduction in simulation output",
//! Simulation 69(6), 1997): of all moments in the first half of a run, the start ends at the one after which the mean
//! of the rates that follow is known best, which is where the sum of their squared deviations, divided by the square
//! of their number, is smallest.
//!
//! The rule always names a moment, also in a run that was all start. So what follows is looked at once more: where the
//! rates of its first half and those of its second differ by more than chance, the start is not over, and that rate is
//! not one to be shown. What was counted after the time of the run, while its tasks ended one after another, is left
//! out.

use serde::{Deserialize, Serialize};

use crate::observer::Sample;
use crate::statistics::{mean, sum_of_squares, variance_of_mean};

/// With fewer stretches there is no telling a start from chance.
const LEAST_STRETCHES: usize = 10;
/// Standard errors by which two means differ that chance does not explain: it does so in one of 15,000 long runs, and
/// in one of 35 where there are few stretches.
const BEYOND_CHANCE: f64 = 4.0;
/// A smaller part of the rate is no drift that matters to anybody.
const LEAST_DRIFT: f64 = 0.01;

/// What is known of the start of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// It is over, and the rate after it is known.
    Over,
    /// The run ended before: its second half still drifts.
    NotOver,
    /// Too little was counted to tell a start from chance.
    TooFewUnits,
    /// Nobody asked: the run took no samples.
    NotAsked,
}

/// The rate of a run after its start.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SteadyRate {
    /// When the start was over, in cycles since the run began.
    pub start_cycles: u64,
    /// Score a second from then on.
    pub score_per_second: f64,
}

/// Looks for the end of the start in `samples`, which were taken while the time of the run was not over, by a clock of
/// `frequency_mhz`. The rate is that after the moment that the rule names, if it names one.
pub(super) fn judge(samples: &[Sample], frequency_mhz: f64) -> (Start, Option<SteadyRate>) {
    let rates: Vec<f64> = samples.windows(2).map(|pair| rate(pair[0], pair[1])).collect();
    if rates.len() < LEAST_STRETCHES {
        return (Start::TooFewUnits, None);
    }
    let doubts = (0..=rates.len() / 2).map(|start| (start, doubt(&rates[start..])));
    let start = doubts.min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(0, |(start, _)| start);
    let known = if drifts(&rates[start..]) { Start::NotOver } else { Start::Over };
    let (first, last) = (samples[start], samples[samples.len() - 1]);
    let score_per_second = rate(first, last) * frequency_mhz * 1e6;
    (known, Some(SteadyRate { start_cycles: first.cycles, score_per_second }))
}

/// Score a cycle between two samples.
fn rate(from: Sample, to: Sample) -> f64 {
    (to.score - from.score) as f64 / (to.cycles - from.cycles).max(1) as f64
}

/// How little is known of the mean of `rates`.
fn doubt(rates: &[f64]) -> f64 {
    sum_of_squares(rates) / (rates.len() as f64).powi(2)
}

/// Whether the two halves of `rates` differ by more than chance, and by enough to matter.
fn drifts(rates: &[f64]) -> bool {
    let halves = rates.split_at(rates.len() / 2);
    let difference = (mean(halves.0) - mean(halves.1)).abs();
    let error = (variance_of_mean(halves.0) + variance_of_mean(halves.1)).sqrt();
    difference > BEYOND_CHANCE * error && difference > LEAST_DRIFT * mean(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples every 100 cycles with these units between them.
    fn samples(units: &[u64]) -> Vec<Sample> {
        let mut score = 0;
        let sample = |(index, unit): (usize, &u64)| {
            score += unit;
            Sample { cycles: 100 * (index as u64 + 1), score }
        };
        units.iter().enumerate().map(sample).collect()
    }

    fn steady(samples: &[Sample]) -> SteadyRate {
        let (start, rate) = judge(samples, 1.0);
        assert_eq!(start, Start::Over);
        rate.unwrap()
    }

    #[test]
    fn a_slow_start_is_left_out() {
        let slow_then_steady = samples(&[0, 1, 2, 5, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]);
        let steady = steady(&slow_then_steady);
        assert_eq!((steady.start_cycles, steady.score_per_second), (400, 1e5));
    }

    #[test]
    fn without_a_start_nothing_is_left_out() {
        let steady = steady(&samples(&[10; 12]));
        assert_eq!((steady.start_cycles, steady.score_per_second), (100, 1e5));
    }

    /// The rates of the second half spread less, but half as many say less of their mean.
    #[test]
    fn chance_is_not_taken_for_a_start() {
        let units: Vec<u64> = [100].into_iter().chain([107, 93].repeat(5)).chain([105, 95].repeat(5)).collect();
        assert_eq!(steady(&samples(&units)).start_cycles, 100);
    }

    #[test]
    fn a_few_stretches_have_no_rule() {
        assert_eq!(judge(&samples(&[10; 10]), 1.0), (Start::TooFewUnits, None));
    }

    #[test]
    fn a_run_that_is_all_start_is_told() {
        let ramp: Vec<u64> = (0..40).map(|step| 100 + 3 * step + step % 3).collect();
        assert_eq!(judge(&samples(&ramp), 1.0).0, Start::NotOver);
        // As fast as it gets from three quarters of the run on.
        let late: Vec<u64> = (0..40).map(|step| 100 + 3 * step.min(30) + step % 3).collect();
        assert_eq!(judge(&samples(&late), 1.0).0, Start::NotOver);
    }

    /// The halves differ by half a percent, which no chance explains.
    #[test]
    fn a_drift_that_does_not_matter_is_none() {
        let units: Vec<u64> = [10_000; 20].into_iter().chain([10_050; 20]).collect();
        let rate = steady(&samples(&units)).score_per_second;
        assert!((1.0e8..1.01e8).contains(&rate), "{rate}");
    }
}
