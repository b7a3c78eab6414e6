//! The runs that one `check` makes, until something is found, all are made, or somebody wants it to end.

use std::time::Instant;

use anyhow::Result;
use tlbkit_check::campaign::{self, Explored, Plan, Report};
use tlbkit_check::schedule::shrink::{Failure, replay, shrink};
use tlbkit_check::{Finding, Line, Log, Outcome, Scenario};

use tlbkit_output::jobs;
use tlbkit_output::note;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::progress_bar;

/// Seeds after each of which it is seen whether somebody wants it to end: a quarter of a second's work. As it is four
/// times a whole number, portions have together the seeds of the later family that all have at once.
const PORTION: u64 = 1024;

/// What came of it.
pub(super) enum Came {
    /// Nothing was found.
    Clean,
    /// Nothing was found in what was done.
    Interrupted,
    Found(Found),
}

/// A run that fails.
pub(super) struct Found {
    scenario: Scenario,
    choices: Vec<u8>,
    finding: Finding,
}

impl Found {
    /// The shortest run that fails as this one, and true; or the run itself, and false, if somebody wants the command
    /// to end before that one is found.
    pub(super) fn shortest(self, stopping: &Stopping) -> Result<(Failure, bool)> {
        note!("found: {}\nlooking for the shortest run that fails so ...", self.finding);
        let Self { scenario, choices, finding } = self;
        let (shrunk, chosen) = (scenario.clone(), choices.clone());
        let mut found = None;
        let job = move |_| Ok(shrink(&shrunk, &chosen, finding.oracle));
        jobs::each(1, stopping, job, |_, failure| {
            found = Some(failure);
            Ok(())
        })?;
        if let Some(failure) = found {
            return Ok((failure, true));
        }
        note!("tlbkit: interrupted: this is the run as it was found; a shorter one may fail as well");
        let outcome = replay(&scenario, &choices, Log::kept());
        Ok((Failure { scenario, choices, outcome }, false))
    }
}

/// What many seeds came to.
pub(super) struct Seeds {
    pub(super) came: Came,
    /// Those of both families.
    pub(super) report: Report,
    /// Those of the first family, and how many there were to be.
    pub(super) done: [u64; 2],
    pub(super) seconds: f64,
}

/// Runs the seeds from 0 on, portion by portion.
pub(super) fn seeds(plan: &Plan, count: u64, stopping: &Stopping) -> Seeds {
    let bar = progress_bar(usize::try_from(count).unwrap_or(usize::MAX));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (began, mut first) = (Instant::now(), 0);
    let mut all = Report { seeds: 0, steps: 0, failure: None };
    while first < count && all.failure.is_none() && !stopping.is_wanted() {
        let portion = PORTION.min(count - first);
        let report = campaign::families(plan, first, portion, threads, &|_| ());
        all.seeds += report.seeds;
        all.steps += report.steps;
        all.failure = report.failure;
        first += portion;
        bar.set_position(first);
    }
    bar.finish_and_clear();
    let came = match &all.failure {
        Some((seed, finding)) => Came::Found(found(plan, *seed, finding)),
        None if first < count => Came::Interrupted,
        None => Came::Clean,
    };
    Seeds { came, report: all, done: [first, count], seconds: began.elapsed().as_secs_f64() }
}

fn found(plan: &Plan, seed: u64, finding: &Finding) -> Found {
    let choices = plan.run(seed).choices;
    Found { scenario: plan.scenario(seed), choices, finding: finding.clone() }
}

/// Explores every schedule with at most `bound` deviations; with how long that took, in seconds.
pub(super) fn exhaust(plan: &Plan, bound: u8, stopping: &Stopping) -> (Came, Explored, f64) {
    let (scenario, began) = (plan.scenario(0), Instant::now());
    let explored = stopping.until_wanted(|stop| campaign::exhaust(&scenario, bound, u64::MAX, stop));
    let came = match explored.failure.clone() {
        Some((choices, finding)) => Came::Found(Found { scenario: explored.scenario.clone(), choices, finding }),
        None if explored.is_complete => Came::Clean,
        None => Came::Interrupted,
    };
    (came, explored, began.elapsed().as_secs_f64())
}

/// One seed, run again.
pub(super) struct Replayed {
    pub(super) seed: u64,
    scenario: Scenario,
    outcome: Outcome,
}

impl Replayed {
    pub(super) fn new(plan: &Plan, seed: u64) -> Self {
        Self { seed, scenario: plan.scenario(seed), outcome: plan.run(seed) }
    }

    pub(super) fn finding(&self) -> Option<&Finding> {
        self.outcome.finding.as_ref()
    }

    pub(super) fn steps(&self) -> u64 {
        self.outcome.steps
    }

    /// What happened in it, step by step.
    pub(super) fn lines(&self) -> Vec<Line> {
        replay(&self.scenario, &self.outcome.choices, Log::kept()).lines
    }

    pub(super) fn into_came(self) -> Came {
        let Self { scenario, outcome, .. } = self;
        let choices = outcome.choices;
        let of = |finding| Came::Found(Found { scenario, choices, finding });
        outcome.finding.map_or(Came::Clean, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlbkit_check::Oracle;

    #[test]
    fn a_run_is_given_as_it_was_found_to_who_does_not_wait_for_the_shortest_one() {
        let plan = Plan::default();
        let finding = Finding { oracle: Oracle::FreedFrame, cpu: 0, step: 9, story: String::new() };
        let stopping = Stopping::never();
        stopping.interrupt();
        let (failure, is_shortest) = found(&plan, 7, &finding).shortest(&stopping).unwrap();
        let whole = plan.run(7);
        assert_eq!((is_shortest, &failure.choices), (false, &whole.choices));
        assert!(
            failure.outcome.steps == whole.steps && !failure.outcome.lines.is_empty(),
            "it is that run, with a log"
        );
    }
}
