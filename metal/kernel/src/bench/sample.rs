//! Repeated timing: the median, and where the middle four fifths lie. Means would be the host's interruptions.

use core::fmt::Write;

use tlbkit_x86::now_cycles;

use crate::report;

/// How often one thing is timed.
const REPETITIONS: usize = 301;

/// How many cycles one thing takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    /// A tenth of the times lies below.
    low: u64,
    median: u64,
    /// A tenth lies above.
    high: u64,
}

impl Sample {
    /// Repeats `once`, which returns the cycles that it took.
    pub(super) fn measure(mut once: impl FnMut() -> u64) -> Self {
        let mut cycles = [0; REPETITIONS];
        // The first is the one that warms up.
        once();
        cycles.iter_mut().for_each(|one| *one = once());
        Self::sorted(cycles)
    }

    /// Repeats `once`, which returns two times that belong to the same event.
    pub(super) fn measure_pair(mut once: impl FnMut() -> (u64, u64)) -> (Self, Self) {
        let mut second = [0; REPETITIONS + 1];
        let mut turn = second.iter_mut();
        let first = Self::measure(|| {
            let (one, other) = once();
            turn.next().into_iter().for_each(|slot| *slot = other);
            one
        });
        let mut kept = [0; REPETITIONS];
        kept.copy_from_slice(&second[1..]);
        (first, Self::sorted(kept))
    }

    fn sorted(mut cycles: [u64; REPETITIONS]) -> Self {
        cycles.sort_unstable();
        let at = |percent| cycles[REPETITIONS * percent / 100];
        Self { low: at(10), median: at(50), high: at(90) }
    }

    /// Prints what `name` costs, on one line.
    pub(super) fn report(&self, name: &str) {
        let Self { low, median, high } = self;
        // The other CPUs only take interrupts, so no other CPU writes.
        report::line(|port| {
            write!(port, r#"{{"kind":"cost","name":"{name}","low":{low},"median":{median},"#)?;
            write!(port, r#""high":{high},"repetitions":{REPETITIONS}}}"#)
        });
    }
}

/// How many cycles `body` takes.
pub(super) fn cycles_of(body: impl FnOnce()) -> u64 {
    let begun = now_cycles();
    body();
    now_cycles() - begun
}
