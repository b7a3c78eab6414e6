//! How long something takes, how often that is measured, and how far the repetitions lie apart.
//!
//! This file and the recorder are the only places of the project that read a clock.

use std::time::Instant;

use serde::Serialize;

/// Nanoseconds that `work` takes.
pub(crate) fn nanoseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

/// Nanoseconds that fallible `work` takes.
pub(crate) fn try_nanoseconds<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// How often measurements are repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// A few seconds in all on a quiet host; several times that on a busy one.
    Quick,
    /// Three times as many repetitions.
    Full,
}

impl Effort {
    /// For what takes long.
    pub(crate) fn repetitions(self) -> usize {
        match self {
            Self::Quick => 7,
            Self::Full => 21,
        }
    }

    /// For single system calls.
    pub(crate) fn many_repetitions(self) -> usize {
        match self {
            Self::Quick => 60,
            Self::Full => 200,
        }
    }
}

/// The distribution of one measured quantity.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// The 10th percentile.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub high: f64,
    /// Repetitions.
    pub repetitions: usize,
}

/// A spread, as a part of the median, beyond which a figure is called noisy.
const NOISY_SPREAD: f64 = 0.5;

impl Sample {
    /// The sample of these repetitions, of which there must be at least one.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "a sample needs a repetition");
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| values[(values.len() - 1) * percent / 100];
        Self { low: at(10), median: at(50), high: at(90), repetitions: values.len() }
    }

    /// The sample of `repetitions` runs of `measure`, after one run that is not counted.
    pub(crate) fn collect(repetitions: usize, mut measure: impl FnMut() -> f64) -> Self {
        measure();
        Self::of((0..repetitions).map(|_| measure()).collect())
    }

    /// This less `other`, not below zero; the spread is that of the worst case.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self {
            low: (self.low - other.high).max(0.0),
            median: (self.median - other.median).max(0.0),
            high: (self.high - other.low).max(0.0),
            repetitions: self.repetitions.min(other.repetitions),
        }
    }

    /// This times `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let Self { low, median, high, repetitions } = *self;
        Self { low: low * factor, median: median * factor, high: high * factor, repetitions }
    }

    /// From the 10th to the 90th percentile, as a part of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { f64::INFINITY } else { (self.high - self.low) / self.median }
    }

    /// Whether the spread is so wide that the median means little.
    #[must_use]
    pub fn is_noisy(&self) -> bool {
        self.spread() > NOISY_SPREAD
    }
}

#[cfg(test)]
mod tests {
    use super::Sample;

    #[test]
    fn percentiles_are_taken_in_order_of_size() {
        let sample = Sample::of((0..=100).rev().map(f64::from).collect());
        assert_eq!((sample.low, sample.median, sample.high, sample.repetitions), (10.0, 50.0, 90.0, 101));
        assert!(sample.is_noisy() && !sample.times(0.0).minus(&sample).median.is_sign_negative());
    }

    #[test]
    fn a_difference_is_as_uncertain_as_both_together() {
        let one = Sample { low: 9.0, median: 10.0, high: 11.0, repetitions: 5 };
        let other = Sample { low: 3.0, median: 4.0, high: 6.0, repetitions: 7 };
        assert_eq!(one.minus(&other), Sample { low: 3.0, median: 6.0, high: 8.0, repetitions: 5 });
        assert!(!one.is_noisy() && other.is_noisy());
    }
}
