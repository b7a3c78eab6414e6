//! A part in the middle of a run: the same run is made twice, to two lengths, and what the shorter one spent is taken
//! off, so that the start of the run does not count.

use tlbkit_sim::RunOutcome;

/// The parameters of a set-up that say where the part begins and ends, in milliseconds.
pub(super) const ENDS: [&str; 2] = ["window_begin", "window_end"];

/// Two lengths of one run.
pub(super) struct Window {
    pub(super) short: RunOutcome,
    pub(super) long: RunOutcome,
}

impl Window {
    /// A window for each seed: the two lists have the outcomes of the same seeds in the same order.
    pub(super) fn of_seeds(short: Vec<RunOutcome>, long: Vec<RunOutcome>) -> Vec<Self> {
        short.into_iter().zip(long).map(|(short, long)| Self { short, long }).collect()
    }

    /// What `of` counts between begin and end.
    pub(super) fn spent(&self, of: &dyn Fn(&RunOutcome) -> u64) -> f64 {
        of(&self.long) as f64 - of(&self.short) as f64
    }
}
