//! All that one command executes, and what has come out of it when it ends or is interrupted.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use serde_json::{Value, json};
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::progress_bar_saying;
use tlbkit_output::{jobs, say};
use tlbkit_sim::RunOutcome;

use super::kept::Kept;
use super::policies::{self, PolicyOutcomes};
use crate::spec::{Point, RunSpec};

/// Runs, setting by setting: in each all seeds of the first policy, then of the next.
pub(crate) struct Work {
    runs: Vec<RunSpec>,
    /// For each run the first one that is written down alike: of such runs one is made.
    firsts: Vec<usize>,
    /// Runs of each policy in a setting.
    seeds: usize,
}

/// The outcome of each run; none for a run that was not done.
pub(crate) struct Finished {
    work: Arc<Work>,
    outcomes: Vec<Option<RunOutcome>>,
    /// Those that were not kept from before.
    pub(crate) run_now: usize,
}

impl Work {
    /// The work of `runs`, at least one, of which each policy has `seeds` in each setting.
    pub(crate) fn new(runs: Vec<RunSpec>, seeds: u16) -> Self {
        let mut known = BTreeMap::new();
        let first = |(run, spec): (usize, &RunSpec)| *known.entry(format!("{:?}", spec.point)).or_insert(run);
        Self { firsts: runs.iter().enumerate().map(first).collect(), runs, seeds: seeds.into() }
    }

    /// Executes the runs of a shard until they are done, or until somebody wants the command to end. What is kept is
    /// not run again, and each new row is kept at once. All policies are run with the first seed, then with the next,
    /// so that what is done when the command ends can be compared.
    pub(crate) fn execute(self, shard: Shard, kept: Option<&Kept>, stopping: &Stopping) -> Result<Finished> {
        let work = Arc::new(self);
        let mut outcomes = vec![None; work.runs.len()];
        let mut left: Vec<_> = (shard.number - 1..work.runs.len()).step_by(shard.of).collect();
        if let Some(kept) = kept {
            for &run in &left {
                outcomes[run] = kept.outcome(&work.runs[run])?;
            }
            left.retain(|&run| outcomes[run].is_none());
        }
        left.retain(|&run| work.firsts[run] == run);
        left.sort_by_key(|&run| run % work.seeds);
        let jobs = left.len();
        let clocks = Clocks::new(&work.runs);
        let shown = clocks.clone();
        let bar = progress_bar_saying(jobs, move || shown.text());
        let doing = Arc::clone(&work);
        let job = move |place: usize| {
            let run = left[place];
            let outcome = doing.runs[run].execute(Some(clocks.of(run)));
            clocks.note_end(run);
            Ok((run, outcome?))
        };
        let mut run_now = 0;
        let ended = jobs::each(jobs, stopping, job, |_, (run, outcome)| {
            kept.map_or(Ok(()), |kept| kept.keep(&work.runs[run], &outcome))?;
            outcomes[run] = Some(outcome);
            run_now += 1;
            bar.inc(1);
            Ok(())
        });
        (0..outcomes.len()).for_each(|run| outcomes[run] = outcomes[work.firsts[run]].clone());
        bar.finish_and_clear();
        ended.map(|_| Finished { work, outcomes, run_now })
    }
}

impl Finished {
    /// A row for each run that was done.
    fn rows(&self) -> Result<Vec<Value>> {
        let done = self.work.runs.iter().zip(&self.outcomes);
        done.filter_map(|(run, outcome)| Some(run.row(outcome.as_ref()?))).collect()
    }

    /// For a program: a row for each run that was done; where there are several seeds the means of each setting, each
    /// with what says which setting it is; and at the end whether some are missing.
    pub(crate) fn say_json(&self, policies: &[String]) -> Result<()> {
        self.rows()?.iter().for_each(|row| say!("{row}"));
        for (run, columns) in self.settings(policies).iter().filter(|_| self.work.seeds > 1) {
            let Point { workload, machine, cpus, set, .. } = &run.point;
            for mut line in policies::json_lines(columns) {
                line["setting"] = json!({ "workload": workload, "machine": machine, "cpus": cpus, "set": set });
                say!("{line}");
            }
        }
        Ok(())
    }

    /// How many runs were done.
    pub(crate) fn done(&self) -> usize {
        self.outcomes.iter().flatten().count()
    }

    /// Each setting: its first run, and what was done, by policy.
    pub(crate) fn settings<'a>(&self, policies: &'a [String]) -> Vec<(&RunSpec, Vec<PolicyOutcomes<'a>>)> {
        let (runs, seeds) = (policies.len() * self.work.seeds, self.work.seeds);
        let settings = self.work.runs.chunks(runs).zip(self.outcomes.chunks(runs));
        let column = |(policy, (runs, outcomes)): (&'a String, (&[RunSpec], &[Option<RunOutcome>]))| {
            let done = runs.iter().zip(outcomes).filter_map(|(run, outcome)| Some((run.point.seed, outcome.clone()?)));
            let (seeds, outcomes) = done.unzip();
            PolicyOutcomes { policy, seeds, outcomes }
        };
        let setting = |(runs, outcomes): (&'_ [RunSpec], &[Option<RunOutcome>])| {
            policies.iter().zip(runs.chunks(seeds).zip(outcomes.chunks(seeds))).map(column).collect()
        };
        settings.map(|both| (&both.0[0], setting(both))).collect()
    }
}

/// The `number`-th of `of` parts, from 1.
#[derive(Clone, Copy)]
pub(crate) struct Shard {
    number: usize,
    of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if 1 <= number && number <= of => Ok(Self { number, of }),
            _ => Err("must be K/N with K from 1 to N".to_owned()),
        }
    }
}

impl Shard {
    /// Everything.
    pub(crate) const WHOLE: Self = Self { number: 1, of: 1 };

    /// How many of `runs` are in it.
    pub(crate) fn count(self, runs: usize) -> usize {
        (self.number - 1..runs).step_by(self.of).len()
    }
}

/// The clock of a run that has ended.
const ENDED: u64 = u64::MAX;
/// More clocks than a line has room for.
const MOST_SHOWN: usize = 4;

/// How far each of several runs has come.
///
/// A clock for each run, in simulated cycles, and the frequency of its machine. Clones are the same clocks.
#[derive(Clone)]
struct Clocks(Arc<[(AtomicU64, f64)]>);

impl Clocks {
    /// A clock for each of `runs`.
    fn new(runs: &[RunSpec]) -> Self {
        Self(runs.iter().map(|run| (AtomicU64::new(0), run.machine.system.frequency_mhz.value)).collect())
    }

    /// The clock of one run.
    fn of(&self, run: usize) -> &AtomicU64 {
        &self.0[run].0
    }

    /// The run has ended.
    fn note_end(&self, run: usize) {
        // Relaxed: the number is only shown, and orders nothing.
        self.of(run).store(ENDED, Ordering::Relaxed);
    }

    /// How far the runs have come that have begun and not ended.
    fn text(&self) -> String {
        // Relaxed: as above.
        let clocks = self.0.iter().map(|(clock, frequency_mhz)| (clock.load(Ordering::Relaxed), frequency_mhz));
        let under_way: Vec<_> = clocks.filter(|&(cycles, _)| cycles != 0 && cycles != ENDED).collect();
        let milliseconds =
            |(cycles, frequency_mhz): &(u64, &f64)| format!("{:.1}", *cycles as f64 / *frequency_mhz / 1e3);
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
        let clocks = Clocks((0..7).map(|_| (AtomicU64::new(0), 2000.0)).collect());
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
