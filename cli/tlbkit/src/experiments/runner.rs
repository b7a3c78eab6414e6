//! Runs what an experiment's file says, and makes its figures: all that most published results need. What varies from
//! figure to figure runs under each policy, and each [`Measure`] is made of the outcomes.

use anyhow::{Context, Result, bail, ensure};
use rayon::prelude::*;
use tlbkit_sim::observer::Cause;
use tlbkit_sim::run::Start;
use tlbkit_sim::statistics::mean;
use tlbkit_sim::{Run, RunOutcome};

use super::iterations::IterationPlan;
use super::plots;
use super::reproduction::{Produced, Reproduction, Window, execute_all, rate};
use crate::compared::difference::{change_pct, changes_pct};
use crate::output::report::Table;
use crate::published::experiment::Value;
use crate::published::key::{Axis, Key, Measure, Side};

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let runs = Runs::of(reproduction)?;
    let mut produced = Produced::default();
    for &key in &reproduction.keys {
        let (ours, samples) = runs.value(key)?;
        produced.figures.push(reproduction.figure(key, ours, &samples)?);
    }
    produced.plots = plots::of(reproduction, &produced.figures);
    if let Some(plan) = &runs.plan {
        let seconds = reproduction.number("iteration_length")? / 1e3;
        let records = runs.mean_rate(runs.amounts[0], 0)? * seconds;
        produced.facts = vec![("counted", plan.counted as f64), ("records", records.round())];
    }
    produced.compared.push(runs.compared());
    Ok(produced)
}

/// All runs of an experiment.
struct Runs<'r> {
    reproduction: &'r Reproduction,
    /// How many there are of what varies, from the least to the most; one that is none if nothing does.
    amounts: Vec<Option<u64>>,
    plan: Option<IterationPlan>,
    /// By amount, by policy, by seed.
    windows: Vec<Vec<Vec<Window>>>,
}

impl<'r> Runs<'r> {
    fn of(reproduction: &'r Reproduction) -> Result<Self> {
        let of_setup = reproduction.number("threads").ok().map(|threads| threads as u64);
        let mut amounts: Vec<_> = reproduction.keys.iter().filter_map(|key| key.at.or(of_setup)).map(Some).collect();
        amounts.sort_unstable();
        amounts.dedup();
        if amounts.is_empty() {
            amounts.push(None);
        }
        let plan = reproduction.number("iterations").is_ok().then(|| IterationPlan::new(reproduction)).transpose()?;
        let mut runs = Self { reproduction, amounts, plan, windows: Vec::new() };
        let policies = reproduction.policy_names().count();
        let of_amount = |&amount: &Option<u64>| {
            (0..policies).into_par_iter().map(|policy| runs.execute(amount, policy)).collect::<Result<Vec<_>>>()
        };
        runs.windows = runs.amounts.par_iter().map(of_amount).collect::<Result<_>>()?;
        Ok(runs)
    }

    /// A run for each seed, as long as the set-up says.
    fn execute(&self, amount: Option<u64>, policy: usize) -> Result<Vec<Window>> {
        let reproduction = self.reproduction;
        let parameter = reproduction.axis.map_or("threads", |axis| axis.parameter());
        let is_of_workload = reproduction.axis != Some(Axis::Guests);
        let of_workload = amount.iter().filter(|_| is_of_workload);
        let setup = &reproduction.experiment.setup;
        let choice = &setup.policies[policy];
        let of_choice = choice.parameters.iter().filter_map(|(key, parameter)| match parameter.value {
            Value::Number(number) => Some(format!("{key}={number}")),
            Value::Text(_) => None,
        });
        let settings: Vec<_> = of_workload.map(|amount| format!("{parameter}={amount}")).chain(of_choice).collect();
        let name = choice.workload.as_ref().unwrap_or(&setup.workload);
        let whole = |outcomes: Vec<RunOutcome>| outcomes.into_iter().map(|long| Window { short: None, long }).collect();
        if let Some(plan) = &self.plan {
            let runs = (0..plan.runs).map(|index| plan.run(reproduction, name, &settings, policy, index));
            return Ok(whole(execute_all(&runs.collect::<Result<Vec<_>>>()?)?));
        }
        let workload = reproduction.workload_called(name, &settings)?;
        let mut run = reproduction.run(policy, workload)?;
        run.guests = amount.filter(|_| !is_of_workload).unwrap_or(run.guests);
        run.sample_cycles = Some(reproduction.milliseconds(reproduction.number("stretch")?));
        run.cpus = match setup.parameters.get("cpus").map(|parameter| &parameter.value) {
            None => run.cpus,
            Some(Value::Number(cpus)) => *cpus as usize,
            Some(Value::Text(_)) => amount.context("one CPU for each thread, and no number of threads")? as usize,
        };
        if setup.parameters.contains_key("window_end") {
            return reproduction.windows(&run);
        }
        if setup.parameters.contains_key("longest") {
            return Ok(whole(self.long_enough(&run, amount.unwrap_or(1))?));
        }
        run.limit_cycles = reproduction.number("length").ok().map(|length| reproduction.milliseconds(length));
        Ok(whole(execute_all(&reproduction.seeds(&run)?)?))
    }

    /// Runs of one length with all seeds. As long as the start of one of them was not over, or its threads did not do
    /// as much as they go through in turn, all are made again, longer.
    fn long_enough(&self, run: &Run<'_>, threads: u64) -> Result<Vec<RunOutcome>> {
        let reproduction = self.reproduction;
        let longest = reproduction.milliseconds(reproduction.number("longest")?);
        let whole = reproduction.number("least")? as u64 * threads;
        let mut length = reproduction.milliseconds(reproduction.number("length")?);
        loop {
            let outcomes = execute_all(&reproduction.seeds(&Run { limit_cycles: Some(length), ..run.clone() })?)?;
            let longer = outcomes.iter().map(|outcome| times_as_long(outcome, whole)).max().unwrap_or(1);
            match next_length(length, longer, longest) {
                Some(next) => length = next,
                None => return Ok(outcomes),
            }
        }
    }

    /// Our value of a figure, and the samples that its interval comes from, one for each seed.
    fn value(&self, key: Key) -> Result<(f64, Vec<f64>)> {
        let under = |policy| Key { side: Side::Of(policy), ..key };
        let samples = match (key.measure, key.side) {
            (Measure::MeanOfAll, Side::Change { of, over }) => {
                let change = |&amount: &_| Ok(change_pct(self.mean_rate(amount, over)?, self.mean_rate(amount, of)?));
                return Ok((mean(&self.amounts.iter().map(change).collect::<Result<Vec<_>>>()?), Vec::new()));
            }
            (_, Side::Change { of, over }) => changes_pct(&self.samples(under(over))?, &self.samples(under(of))?),
            (Measure::Change, _) => changes_pct(&self.samples(under(0))?, &self.samples(under(1))?),
            (Measure::Gain, Side::Of(policy)) => {
                let gain = change_pct(self.mean_rate(key.at, 0)?, self.mean_rate(key.at, policy)?);
                return Ok((gain, changes_pct(&self.samples(under(0))?, &self.samples(key)?)));
            }
            (Measure::Deviation, Side::Of(policy)) => {
                let plan = self.plan.as_ref().context("no iterations")?;
                let of = |name| self.reproduction.number(name);
                let lengths = 1e3 * of("iteration_seconds")? / of("iteration_length")?;
                return Ok((plan.deviation(&self.stretches(key.at, policy)?, lengths), Vec::new()));
            }
            (Measure::MeanRate, Side::Of(policy)) => return Ok((self.mean_rate(key.at, policy)?, self.samples(key)?)),
            (Measure::OneMoreThread, _) => self.more(key, 0)?,
            (Measure::TwoMoreThreads, _) => self.more(key, 1)?,
            (Measure::WalksLeft, _) => {
                let [with, without] = [0, 1].map(|policy| self.windows(key.at, policy));
                let left = |(with, without)| 100.0 * self.walks(with) / self.walks(without);
                with?.iter().zip(without?).map(left).collect()
            }
            _ => self.samples(key)?,
        };
        Ok((mean(&samples), samples))
    }

    /// What a unit takes longer with the number of threads that follows the one at this place.
    fn more(&self, key: Key, place: usize) -> Result<Vec<f64>> {
        let time = |place: usize| {
            let at = *self.amounts.get(place).context("too few numbers of threads")?;
            self.samples(Key { measure: Measure::Time, at, ..key })
        };
        Ok(time(place + 1)?.iter().zip(time(place)?).map(|(more, fewer)| more - fewer).collect())
    }

    fn windows(&self, at: Option<u64>, policy: usize) -> Result<&[Window]> {
        let at = at.or(self.reproduction.number("threads").ok().map(|threads| threads as u64));
        let place = self.amounts.iter().position(|amount| *amount == at).context("a figure of what does not run")?;
        self.windows[place].get(policy).map(Vec::as_slice).context("a figure of a policy that does not run")
    }

    /// What a figure is made of, a value for each seed.
    fn samples(&self, key: Key) -> Result<Vec<f64>> {
        let policy = if let Side::Of(policy) = key.side { policy } else { 0 };
        self.windows(key.at, policy)?.iter().map(|window| self.of_window(key.measure, window)).collect()
    }

    fn of_window(&self, measure: Measure, window: &Window) -> Result<f64> {
        let all = |outcome: &RunOutcome| outcome.ledger.total();
        let busy = |outcome: &RunOutcome| outcome.ledger.total() - outcome.cycles(Cause::Idle);
        let units = |outcome: &RunOutcome| outcome.score;
        let share = |causes: &[Cause]| {
            let spent = |outcome: &RunOutcome| causes.iter().map(|&cause| outcome.cycles(cause)).sum();
            part(100.0, measure, window, &spent, &busy)
        };
        match measure {
            Measure::Rate | Measure::MeanRate | Measure::Gain | Measure::Change => match &self.plan {
                Some(plan) => Ok(mean(&plan.rates(self.reproduction, &window.long))),
                None => Ok(rate(&window.long) / self.scale(Measure::Rate)),
            },
            Measure::Time => Ok(self.scale(measure) / (self.turns() * rate(&window.long))),
            Measure::TimedCall => {
                let cycles_a_unit = self.reproduction.milliseconds(1e3) as f64 / self.scale(measure);
                Ok(part(1.0, measure, window, &|outcome| outcome.kernel.timed_cycles, &units)? / cycles_a_unit)
            }
            Measure::Walks => Ok(self.walks(window) * self.reproduction.number("run_length")? / 1e6),
            Measure::Interrupts => part(1.0, measure, window, &|outcome| outcome.ipis.received, &units),
            Measure::InterruptRate => Ok(window.a_second(&|outcome| outcome.ipis.received)),
            Measure::WindowRate => Ok(window.a_second(&units)),
            Measure::Flushes => part(1.0, measure, window, &|outcome| outcome.flushes.flushes, &units),
            Measure::InterruptsOfFlush => {
                part(1.0, measure, window, &|outcome| outcome.ipis.received, &|outcome| outcome.flushes.flushes)
            }
            Measure::Switches => part(1.0, measure, window, &|outcome| outcome.kernel.switches, &units),
            Measure::Idle => part(100.0, measure, window, &|outcome| outcome.cycles(Cause::Idle), &all),
            Measure::Shootdowns => share(&[Cause::FlushSend, Cause::FlushWait, Cause::Interrupt]),
            Measure::Telling => share(&[Cause::FlushSend]),
            Measure::Answering => share(&[Cause::Interrupt]),
            Measure::LockWaits => share(&[Cause::LockSpin]),
            other => bail!("{}: is no figure of a run by itself", other.words()),
        }
    }

    /// By what a rate is divided, or of what a time is a part, for the unit that the file has it in.
    fn scale(&self, measure: Measure) -> f64 {
        let of_measure = |(key, _): &(&Key, _)| key.measure == measure && !matches!(key.side, Side::Change { .. });
        let figures = self.reproduction.keys.iter().zip(&self.reproduction.experiment.expected);
        let unit = figures.clone().find(of_measure).map_or("", |(_, expected)| &expected.unit);
        match unit {
            "ns" => 1e9,
            "us" => 1e6,
            thousands if thousands.starts_with("k ") => 1e3,
            _ => 1.0,
        }
    }

    /// What a unit of the workload has of what the document times: a round of two processes has two turns.
    fn turns(&self) -> f64 {
        self.reproduction.number("turns_a_round").unwrap_or(1.0)
    }

    /// Walks a turn.
    fn walks(&self, window: &Window) -> f64 {
        window.long.tlb.walks as f64 / (self.turns() * window.long.score as f64)
    }

    /// The rates of all iterations, by run.
    fn stretches(&self, at: Option<u64>, policy: usize) -> Result<Vec<Vec<f64>>> {
        let plan = self.plan.as_ref().context("no iterations")?;
        let windows = self.windows(at, policy)?;
        Ok(windows.iter().map(|window| plan.rates(self.reproduction, &window.long)).collect())
    }

    fn mean_rate(&self, at: Option<u64>, policy: usize) -> Result<f64> {
        Ok(mean(&self.stretches(at, policy)?.concat()))
    }

    /// The policies side by side, with the amount in the middle.
    fn compared(self) -> Table {
        let middle = self.amounts.len() / 2;
        let amount = self.amounts.get(middle).copied().flatten();
        let word = self.reproduction.axis.map_or("threads", |axis| axis.word());
        let amount = amount.map_or_else(String::new, |amount| format!(", {amount} {word}"));
        let title = format!("{}{amount}", self.reproduction.experiment.setup.workload);
        let row = self.windows.into_iter().nth(middle).unwrap_or_default();
        let first = row.into_iter().filter_map(|seeds| seeds.into_iter().next()).map(|window| window.long);
        self.reproduction.compare(&title, first)
    }
}

/// What `of` counts, for each of what `whole` counts, times `scale`.
fn part(
    scale: f64,
    measure: Measure,
    window: &Window,
    of: &dyn Fn(&RunOutcome) -> u64,
    whole: &dyn Fn(&RunOutcome) -> u64,
) -> Result<f64> {
    let whole = window.spent(whole);
    ensure!(whole > 0.0, "{}: there is nothing from window_begin to window_end", measure.words());
    Ok(scale * window.spent(of) / whole)
}

/// The length of the runs that follow runs of `length`, which should have been `longer` times as long; none if these
/// were long enough, or as long as is allowed.
fn next_length(length: u64, longer: u64, longest: u64) -> Option<u64> {
    let next = length.saturating_mul(longer).min(longest);
    (next > length).then_some(next)
}

/// How many times as long the run should have been, to go through `whole` units and beyond its start.
fn times_as_long(outcome: &RunOutcome, whole: u64) -> u64 {
    let is_over = outcome.start != Start::NotOver;
    whole.div_ceil(outcome.score.max(1)).max(if is_over { 1 } else { 2 })
}
