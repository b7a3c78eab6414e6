//! All that one `run` executes, and what has come out of it when it ends or is interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use serde_json::{Value, json};
use tlbkit_output::jobs;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::progress_bar_saying;
use tlbkit_sim::RunOutcome;

use crate::lab::draws::Draws;
use crate::lab::named_run::{NamedRun, machine};
use crate::lab::seeds::PolicyOutcomes;

/// Runs, and the machines drawn for them.
pub(super) struct Work {
    /// All seeds of the first policy, then of the next.
    runs: Vec<NamedRun>,
    /// Runs of each policy.
    repeats: usize,
    draws: Option<Draws>,
    jobs: Vec<Job>,
}

/// A run, by its place among all runs, and the draw whose machine it takes. Without a draw it takes the machine of the
/// file.
struct Job {
    run: usize,
    draw: Option<usize>,
}

/// The outcome of each job; none for a job that was not done.
pub(super) struct Finished {
    work: Arc<Work>,
    outcomes: Vec<Option<RunOutcome>>,
}

/// Outcomes sorted by policy.
pub(super) enum Sorted<'a> {
    /// All of them, on the file's own machine.
    Seeds(Vec<PolicyOutcomes<'a>>),
    /// On drawn machines, and on the file's own: of the first draws, up to one that is not done under every policy.
    Draws { draws: Draws, drawn: Vec<PolicyOutcomes<'a>>, own: Vec<PolicyOutcomes<'a>> },
}

impl Work {
    /// The work of `runs`, of which each policy has `repeats`. If there are `draws`, each run is first done on the
    /// machine of its draw.
    pub(super) fn new(runs: Vec<NamedRun>, repeats: u16, draws: Option<Draws>) -> Self {
        let repeats = usize::from(repeats);
        // Runs of one seed have one machine.
        let on_drawn = (0..runs.len()).map(|run| Job { run, draw: Some(run % repeats) });
        let on_own = (0..runs.len()).map(|run| Job { run, draw: None });
        let jobs = on_drawn.filter(|_| draws.is_some()).chain(on_own).collect();
        Self { runs, repeats, draws, jobs }
    }

    /// Executes the work until it is done, or until somebody wants the command to end. All policies are run with the
    /// first seed, then with the next, so that whatever is done can be compared.
    pub(super) fn execute(self, stopping: &Stopping) -> Result<Finished> {
        let work = Arc::new(self);
        let clocks = Clocks::new(work.jobs.len(), machine(&work.runs[0].machine)?.system.frequency_mhz.value);
        let shown = clocks.clone();
        let bar = progress_bar_saying(work.jobs.len(), move || shown.text());
        let mut order: Vec<_> = (0..work.jobs.len()).collect();
        order.sort_by_key(|&job| work.jobs[job].run % work.repeats);
        let mut outcomes: Vec<_> = work.jobs.iter().map(|_| None).collect();
        let doing = Arc::clone(&work);
        let job = move |place: usize| {
            let job = order[place];
            let outcome = doing.outcome(&doing.jobs[job], &clocks, job);
            clocks.note_end(job);
            Ok((job, outcome?))
        };
        let ended = jobs::each(work.jobs.len(), stopping, job, |_, (job, outcome)| {
            outcomes[job] = Some(outcome);
            bar.inc(1);
            Ok(())
        });
        bar.finish_and_clear();
        ended.map(|_| Finished { work, outcomes })
    }

    fn outcome(&self, job: &Job, clocks: &Clocks, clock: usize) -> Result<RunOutcome> {
        let (run, clock) = (&self.runs[job.run], clocks.of(clock));
        match (&self.draws, job.draw) {
            (Some(draws), Some(draw)) => draws.execute(draw, run, clock),
            _ => run.execute(clock),
        }
    }

    /// The names, the draw if there is one, and what came out.
    fn row(&self, job: &Job, outcome: &RunOutcome) -> Result<Value> {
        let mut row = self.runs[job.run].row(outcome)?;
        if let Some(draw) = job.draw {
            row["draw"] = (draw + 1).into();
        }
        Ok(row)
    }

    /// The `outcomes` of all runs by policy: of each policy its first `repeats` at most.
    fn columns<'a>(
        &self,
        policies: &'a [String],
        outcomes: impl Iterator<Item = Option<RunOutcome>>,
        repeats: usize,
    ) -> Vec<PolicyOutcomes<'a>> {
        let mut left = self.runs.iter().zip(outcomes);
        let column = |policy: &'a String| {
            let wanted = left.by_ref().take(self.repeats).enumerate().filter(|&(repeat, _)| repeat < repeats);
            let (seeds, outcomes) = wanted.filter_map(|(_, (run, outcome))| Some((run.seed, outcome?))).unzip();
            PolicyOutcomes { policy, seeds, outcomes }
        };
        policies.iter().map(column).collect()
    }
}

impl Finished {
    /// A row for each run that was done.
    pub(super) fn rows(&self) -> Result<Vec<Value>> {
        let done = self.work.jobs.iter().zip(&self.outcomes);
        done.filter_map(|(job, outcome)| Some(self.work.row(job, outcome.as_ref()?))).collect()
    }

    /// How many runs were done, and of how many.
    pub(super) fn count(&self) -> [usize; 2] {
        [self.outcomes.iter().flatten().count(), self.outcomes.len()]
    }

    /// For a program: how far it came, if it was interrupted.
    pub(super) fn interrupted_json(&self) -> Option<Value> {
        let [runs, all] = self.count();
        (runs < all).then(|| json!({ "interrupted": true, "runs": runs, "of": all }))
    }

    /// What was done, by policy.
    pub(super) fn sorted(mut self, policies: &[String]) -> Sorted<'_> {
        let work = &self.work;
        let Some(draws) = &work.draws else {
            return Sorted::Seeds(work.columns(policies, self.outcomes.into_iter(), work.repeats));
        };
        let repeat = |job: usize| work.jobs[job].run % work.repeats;
        let missing = (0..self.outcomes.len()).filter(|&job| self.outcomes[job].is_none()).map(repeat);
        let whole = missing.min().unwrap_or(work.repeats);
        let own = self.outcomes.split_off(work.runs.len());
        Sorted::Draws {
            draws: draws.first(whole),
            drawn: work.columns(policies, self.outcomes.into_iter(), whole),
            own: work.columns(policies, own.into_iter(), whole),
        }
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
