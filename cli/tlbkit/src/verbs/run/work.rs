//! All that one `run` executes, and what has come out of it when it ends or is interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use serde_json::Value;
use tlbkit_output::jobs;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::progress_bar_saying;
use tlbkit_sim::RunOutcome;

use crate::compared::policies::PolicyOutcomes;
use crate::spec::RunSpec;

/// Runs: all seeds of the first policy, then of the next.
pub(super) struct Work {
    runs: Vec<RunSpec>,
    /// Runs of each policy.
    seeds: usize,
}

/// The outcome of each run; none for a run that was not done.
pub(super) struct Finished {
    work: Arc<Work>,
    outcomes: Vec<Option<RunOutcome>>,
}

impl Work {
    /// The work of `runs`, at least one, of which each policy has `seeds`.
    pub(super) fn new(runs: Vec<RunSpec>, seeds: u16) -> Self {
        Self { runs, seeds: seeds.into() }
    }

    /// Executes the work until it is done, or until somebody wants the command to end. All policies are run with the
    /// first seed, then with the next, so that whatever is done can be compared.
    pub(super) fn execute(self, stopping: &Stopping) -> Result<Finished> {
        let work = Arc::new(self);
        let clocks = Clocks::new(work.runs.len(), work.runs[0].machine.system.frequency_mhz.value);
        let shown = clocks.clone();
        let bar = progress_bar_saying(work.runs.len(), move || shown.text());
        let mut order: Vec<_> = (0..work.runs.len()).collect();
        order.sort_by_key(|&run| run % work.seeds);
        let mut outcomes: Vec<_> = work.runs.iter().map(|_| None).collect();
        let doing = Arc::clone(&work);
        let job = move |place: usize| {
            let run = order[place];
            let outcome = doing.runs[run].execute(Some(clocks.of(run)));
            clocks.note_end(run);
            Ok((run, outcome?))
        };
        let ended = jobs::each(work.runs.len(), stopping, job, |_, (run, outcome)| {
            outcomes[run] = Some(outcome);
            bar.inc(1);
            Ok(())
        });
        bar.finish_and_clear();
        ended.map(|_| Finished { work, outcomes })
    }
}

impl Finished {
    /// The first run.
    pub(super) fn first(&self) -> &RunSpec {
        &self.work.runs[0]
    }

    /// A row for each run that was done.
    pub(super) fn rows(&self) -> Result<Vec<Value>> {
        let done = self.work.runs.iter().zip(&self.outcomes);
        done.filter_map(|(run, outcome)| Some(run.row(outcome.as_ref()?))).collect()
    }

    /// How many runs were done, and of how many.
    pub(super) fn count(&self) -> [usize; 2] {
        [self.outcomes.iter().flatten().count(), self.outcomes.len()]
    }

    /// What was done, by policy.
    pub(super) fn columns<'a>(&self, policies: &'a [String]) -> Vec<PolicyOutcomes<'a>> {
        let seeds = self.work.seeds;
        let of_policy = self.work.runs.chunks(seeds).zip(self.outcomes.chunks(seeds));
        let column = |(policy, (runs, outcomes)): (&'a String, (&[RunSpec], &[Option<RunOutcome>]))| {
            let done = runs.iter().zip(outcomes).filter_map(|(run, outcome)| Some((run.point.seed, outcome.clone()?)));
            let (seeds, outcomes) = done.unzip();
            PolicyOutcomes { policy, seeds, outcomes }
        };
        policies.iter().zip(of_policy).map(column).collect()
    }
}

/// The clock of a run that has ended.
const ENDED: u64 = u64::MAX;
/// More clocks than a line has room for.
const MOST_SHOWN: usize = 4;

/// How far each of several runs has come, for whoever waits for them.
///
/// A clock for each run, in simulated cycles. Clones are the same clocks.
#[derive(Clone)]
struct Clocks {
    cycles: Arc<[AtomicU64]>,
    frequency_mhz: f64,
}

impl Clocks {
    /// Clocks for `runs` runs on a machine with this frequency.
    fn new(runs: usize, frequency_mhz: f64) -> Self {
        Self { cycles: (0..runs).map(|_| AtomicU64::new(0)).collect(), frequency_mhz }
    }

    /// The clock of one run.
    fn of(&self, run: usize) -> &AtomicU64 {
        &self.cycles[run]
    }

    /// The run has ended.
    fn note_end(&self, run: usize) {
        // Relaxed: the number is only shown, and orders nothing.
        self.cycles[run].store(ENDED, Ordering::Relaxed);
    }

    /// How far the runs have come that have begun and not ended.
    fn text(&self) -> String {
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
