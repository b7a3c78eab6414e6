//! Two ways of doing the same, run in turn and compared pair by pair, so that what drifts meanwhile drifts for both.
//!
//! The interval is the one of the sign test: it assumes nothing of how the ratios are distributed, only that pairs do
//! not depend on each other.

use serde::Serialize;

/// How confident an interval is meant to be, where there are pairs enough.
const CONFIDENCE: f64 = 0.95;
/// One that is less confident tells nothing: that of fewer than five pairs.
pub(crate) const LEAST_CONFIDENCE: f64 = 0.9;

/// How much longer the second way takes than the first.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PairedRatio {
    /// The median ratio: 1 for no difference.
    pub ratio: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
    /// How likely the interval holds the true median, from 0 to 1; below 0.95 with fewer than six pairs.
    pub confidence: f64,
    /// Pairs.
    pub pairs: usize,
}

impl PairedRatio {
    /// The ratio of these measurements, the first and the second of each pair. There must be at least one pair.
    ///
    /// # Panics
    /// If there is none, or if one list is longer.
    #[must_use]
    pub fn of(first: &[f64], second: &[f64]) -> Self {
        assert!(!first.is_empty() && first.len() == second.len(), "pairs need both halves");
        let mut ratios: Vec<f64> = first.iter().zip(second).map(|(first, second)| second / first).collect();
        ratios.sort_by(f64::total_cmp);
        let pairs = ratios.len();
        let (left_out, confidence) = left_out(pairs);
        let ratio = (ratios[(pairs - 1) / 2] + ratios[pairs / 2]) / 2.0;
        Self { ratio, low: ratios[left_out], high: ratios[pairs - 1 - left_out], confidence, pairs }
    }

    /// False if nothing can be told: the interval holds "no difference", or there are too few pairs for one.
    #[must_use]
    pub fn is_difference(&self) -> bool {
        self.confidence >= LEAST_CONFIDENCE && (self.low > 1.0 || self.high < 1.0)
    }
}

/// How many ratios may be left out at each end, and how confident what remains is.
fn left_out(pairs: usize) -> (usize, f64) {
    // For each number from 0 on: the probability that at most that many of `pairs` fall on one side of the true median.
    let mut one = 0.5_f64.powi(i32::try_from(pairs).unwrap_or(i32::MAX));
    let mut tail = one;
    let mut found = (0, 1.0 - 2.0 * tail);
    for count in 1..pairs.div_ceil(2) {
        one *= (pairs - count + 1) as f64 / count as f64;
        tail += one;
        if 1.0 - 2.0 * tail < CONFIDENCE {
            break;
        }
        found = (count, 1.0 - 2.0 * tail);
    }
    found
}

/// Which half of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Without the change.
    Without,
    /// With what is tried.
    With,
}

/// Runs both halves `pairs` times, and returns what came of those without and of those with.
///
/// # Errors
/// The first that a run returns; it ends the whole.
pub fn in_turn<R, E>(pairs: usize, mut run: impl FnMut(Half) -> Result<R, E>) -> Result<[Vec<R>; 2], E> {
    let mut halves = [Vec::with_capacity(pairs), Vec::with_capacity(pairs)];
    for pair in 0..pairs {
        // Each of the two is first in every other pair, so that neither gains by what the one before leaves behind.
        let order = [Half::Without, Half::With];
        for half in if pair % 2 == 0 { order } else { [order[1], order[0]] } {
            halves[half as usize].push(run(half)?);
        }
    }
    Ok(halves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        // From a table of the binomial distribution.
        let rounded = |pairs| {
            let (out, confidence) = left_out(pairs);
            (out, (confidence * 1000.0).round())
        };
        assert_eq!(
            [1, 5, 6, 8, 9, 20].map(rounded),
            [(0, 0.0), (0, 938.0), (0, 969.0), (0, 992.0), (1, 961.0), (5, 959.0)]
        );
    }

    #[test]
    fn a_drift_that_both_halves_share_is_no_difference() {
        let plain: Vec<f64> = (0..8).map(|n| 1.0 + f64::from(n)).collect();
        let slower: Vec<f64> = plain.iter().map(|seconds| seconds * 1.05).collect();
        let found = PairedRatio::of(&plain, &slower);
        assert!((found.ratio - 1.05).abs() < 1e-9 && found.is_difference(), "{found:?}");
        let turned: Vec<f64> = plain.iter().enumerate().map(|(n, seconds)| seconds * [0.9, 1.1][n % 2]).collect();
        assert!(!PairedRatio::of(&plain, &turned).is_difference());
    }

    #[test]
    fn four_pairs_tell_nothing_and_five_do() {
        let of = |pairs| PairedRatio::of(&vec![1.0; pairs], &vec![1.46; pairs]);
        assert!((1..5).all(|pairs| !of(pairs).is_difference()));
        assert!(of(5).is_difference());
    }

    #[test]
    fn each_half_is_first_in_every_other_pair() {
        let mut order = Vec::new();
        let halves = in_turn(3, |half| {
            order.push(half);
            Ok::<_, ()>(order.len())
        });
        use Half::{With, Without};
        assert_eq!(order, [Without, With, With, Without, Without, With]);
        assert_eq!(halves, Ok([vec![1, 4, 5], vec![2, 3, 6]]));
    }

    #[test]
    fn an_error_ends_it() {
        let mut runs = 0;
        let halves: Result<[Vec<()>; 2], _> = in_turn(3, |_| {
            runs += 1;
            if runs == 2 { Err("no") } else { Ok(()) }
        });
        assert_eq!((halves, runs), (Err("no"), 2));
    }
}
