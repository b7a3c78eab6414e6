//! The rate of a run without its start, by a rule that looks at nothing but the rates themselves.
//!
//! The rule is MSER (K. P. White, "An effective truncation heuristic for bias reduction in simulation output",
//! Simulation 69(6), 1997): of all moments in the first half of a run, the start ends at the one after which the mean
//! of the rates that follow is known best, which is where the sum of their squared deviations, divided by the square
//! of their number, is smallest.

use serde::Serialize;

use crate::observer::Sample;

/// With fewer stretches there is no telling a start from chance.
const LEAST_STRETCHES: usize = 10;

/// The rate of a run after its start.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SteadyRate {
    /// When the start was over, in cycles since the run began.
    pub start_cycles: u64,
    /// Score a second from then on.
    pub score_per_second: f64,
}

impl SteadyRate {
    /// That of `samples`, by a clock of `frequency_mhz`; none if there are too few of them.
    pub(super) fn of(samples: &[Sample], frequency_mhz: f64) -> Option<Self> {
        let rates: Vec<f64> = samples.windows(2).map(|pair| rate(pair[0], pair[1])).collect();
        if rates.len() < LEAST_STRETCHES {
            return None;
        }
        let doubts = (0..=rates.len() / 2).map(|start| (start, doubt(&rates[start..])));
        let (start, _) = doubts.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let (first, last) = (samples[start], *samples.last()?);
        Some(Self { start_cycles: first.cycles, score_per_second: rate(first, last) * frequency_mhz * 1e6 })
    }
}

/// Score a cycle between two samples.
fn rate(from: Sample, to: Sample) -> f64 {
    (to.score - from.score) as f64 / (to.cycles - from.cycles).max(1) as f64
}

/// How little is known of the mean of `rates`.
fn doubt(rates: &[f64]) -> f64 {
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (n * n)
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

    #[test]
    fn a_slow_start_is_left_out() {
        let slow_then_steady = samples(&[0, 1, 2, 5, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]);
        let steady = SteadyRate::of(&slow_then_steady, 1.0).unwrap();
        assert_eq!((steady.start_cycles, steady.score_per_second), (400, 1e5));
    }

    #[test]
    fn without_a_start_nothing_is_left_out() {
        let steady = SteadyRate::of(&samples(&[10; 12]), 1.0).unwrap();
        assert_eq!((steady.start_cycles, steady.score_per_second), (100, 1e5));
    }

    /// The rates of the second half spread less, but half as many say less of their mean.
    #[test]
    fn chance_is_not_taken_for_a_start() {
        let units: Vec<u64> = [100].into_iter().chain([107, 93].repeat(5)).chain([105, 95].repeat(5)).collect();
        assert_eq!(SteadyRate::of(&samples(&units), 1.0).unwrap().start_cycles, 100);
    }

    #[test]
    fn a_few_stretches_have_no_rule() {
        assert_eq!(SteadyRate::of(&samples(&[10; 10]), 1.0), None);
    }
}
