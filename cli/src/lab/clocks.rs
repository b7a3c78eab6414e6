//! How far each of several runs has come, for whoever waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The clock of a run that has ended.
const ENDED: u64 = u64::MAX;
/// More clocks than a line has room for.
const MOST_SHOWN: usize = 4;

/// A clock for each run, in simulated cycles. Clones are the same clocks.
#[derive(Clone)]
pub(crate) struct Clocks {
    cycles: Arc<[AtomicU64]>,
    frequency_mhz: f64,
}

impl Clocks {
    /// Clocks for `runs` runs on a machine with this frequency.
    pub(crate) fn new(runs: usize, frequency_mhz: f64) -> Self {
        Self { cycles: (0..runs).map(|_| AtomicU64::new(0)).collect(), frequency_mhz }
    }

    /// The clock of one run.
    pub(crate) fn of(&self, run: usize) -> &AtomicU64 {
        &self.cycles[run]
    }

    /// The run has ended.
    pub(crate) fn note_end(&self, run: usize) {
        // Relaxed: the number is only shown, and orders nothing.
        self.cycles[run].store(ENDED, Ordering::Relaxed);
    }

    /// How far the runs have come that have begun and not ended.
    pub(crate) fn text(&self) -> String {
        // Relaxed: as above.
        let clocks = self.cycles.iter().map(|clock| clock.load(Ordering::Relaxed));
        let under_way: Vec<_> = clocks.filter(|&cycles| cycles != 0 && cycles != ENDED).collect();
        let milliseconds = |cycles: &u64| format!("{:.1}", *cycles as f64 / self.frequency_mhz / 1e3);
        let shown: Vec<_> = under_way.iter().take(MOST_SHOWN).map(milliseconds).collect();
        let more = if under_way.len() > MOST_SHOWN { ", ..." } else { "" };
        if shown.is_empty() { String::new() } else { format!("(simulated {}{more} ms)", shown.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runs_that_are_under_way_are_shown() {
        let clocks = Clocks::new(7, 2000.0);
        assert_eq!(clocks.text(), "");
        clocks.of(1).store(3_000_000, Ordering::Relaxed);
        clocks.of(2).store(20_100_000, Ordering::Relaxed);
        assert_eq!(clocks.clone().text(), "(simulated 1.5, 10.1 ms)");
        clocks.note_end(1);
        assert_eq!(clocks.text(), "(simulated 10.1 ms)");
        (3..7).for_each(|run| clocks.of(run).store(2_000_000, Ordering::Relaxed));
        assert_eq!(clocks.text(), "(simulated 10.1, 1.0, 1.0, 1.0, ... ms)");
    }
}
