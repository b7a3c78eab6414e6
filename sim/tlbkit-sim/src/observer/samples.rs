//! The score as time goes by, for callers that want the rate of a part of a run.

use std::cell::{Cell, RefCell};

/// The score at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Cycles since the run began.
    pub cycles: u64,
    /// What the workload had counted, the unit that was just completed included.
    pub score: u64,
}

/// Takes a sample with the first unit that is completed in each period: a rate between two is one of whole units.
#[derive(Debug)]
pub(crate) struct Samples {
    period_cycles: u64,
    next: Cell<u64>,
    taken: RefCell<Vec<Sample>>,
}

impl Samples {
    /// None are taken without a period.
    pub(crate) fn new(period_cycles: Option<u64>) -> Self {
        let period_cycles = period_cycles.map_or(u64::MAX, |period| period.max(1));
        Self { period_cycles, next: Cell::new(period_cycles), taken: RefCell::default() }
    }

    /// Looks whether one is due.
    #[inline]
    pub(crate) fn look(&self, cycles: u64, score: u64) {
        if cycles >= self.next.get() {
            self.taken.borrow_mut().push(Sample { cycles, score });
            self.next.set((cycles / self.period_cycles + 1) * self.period_cycles);
        }
    }

    pub(crate) fn take(&self) -> Vec<Sample> {
        self.taken.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_unit_of_each_period_is_noted() {
        let samples = Samples::new(Some(100));
        for (cycles, score) in [(40, 1), (99, 2), (120, 3), (150, 4), (310, 5), (399, 6), (400, 7)] {
            samples.look(cycles, score);
        }
        let taken: Vec<_> = samples.take().iter().map(|sample| (sample.cycles, sample.score)).collect();
        assert_eq!(taken, [(120, 3), (310, 5), (400, 7)]);
    }

    #[test]
    fn without_a_period_there_are_none() {
        let samples = Samples::new(None);
        samples.look(1 << 60, 1);
        assert!(samples.take().is_empty());
    }
}
