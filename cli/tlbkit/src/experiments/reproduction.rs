//! What the module of a published result is given to reproduce it, and what it gives back.

use std::ops::Range;

use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use tlbkit::Policy;
use tlbkit_machine::{Machine, Noise};
use tlbkit_sim::Sweep;
use tlbkit_sim::statistics::mean;
use tlbkit_sim::{KernelSettings, PerVmaLocks, Run, RunOutcome};
use tlbkit_workloads::Workload;

use crate::compared::quantity::compared_rows;
use crate::output::report::Table;
use crate::output::svg::Plot;
use crate::published::expected::Expected;
use crate::published::experiment::{Experiment, Note, Value};
use crate::published::figure::Figure;
use crate::published::key::{Axis, Key};
use crate::spec::{KERNEL_KEYS, kernel_of, set, workload};
use tlbkit_output::policy;

/// What the reproduction of one published result gives.
#[derive(Default)]
pub(crate) struct Produced {
    /// Its figures, in any order.
    pub(crate) figures: Vec<Figure>,
    /// Pictures.
    pub(crate) plots: Vec<Plot>,
    /// Tables beside the figures.
    pub(crate) tables: Vec<Table>,
    /// Numbers of the run that its notes name, beside the figures; rounded as a reader should see them.
    pub(crate) facts: Vec<(&'static str, f64)>,
    /// Its policies side by side, for the comparison at the end of the report.
    pub(crate) compared: Vec<Table>,
}

/// A published result that is to be reproduced, with the machine on which it runs.
pub(crate) struct Reproduction {
    pub(crate) experiment: Experiment,
    pub(crate) machine: Machine,
    /// Which figures the experiment expects, in their order.
    pub(super) keys: Vec<Key>,
    /// What varies from figure to figure, if anything does.
    pub(super) axis: Option<Axis>,
}

/// The seed of the first of several runs that differ by their seeds; those after it have the next ones.
const FIRST_SEED: u64 = 1;

/// How a set-up says who takes a per-VMA lock.
const PER_VMA_LOCKS: [(&str, PerVmaLocks); 2] = [("none", PerVmaLocks::Absent), ("for faults", PerVmaLocks::ForFaults)];
/// How a set-up says what becomes of new pages before a sweep.
const SWEEPS: [(&str, Sweep); 2] = [("drains", Sweep::Drains), ("leaves", Sweep::Leaves)];

impl Reproduction {
    /// Takes the quantities of `experiment` apart, and reads its machine.
    pub(crate) fn new(experiment: Experiment) -> Result<Self> {
        let policies: Vec<_> = experiment.setup.policies.iter().map(|policy| policy.id.as_str()).collect();
        let key = |quantity: &String| {
            let key = Key::parse(quantity, &policies);
            key.with_context(|| format!("experiment {}: {quantity}: measures nothing that is known", experiment.id))
        };
        let keys = experiment.expected.iter().map(|expected| key(&expected.quantity)).collect::<Result<Vec<_>>>()?;
        let axis = keys.iter().find_map(|(_, axis)| *axis);
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        Ok(Self { machine: Machine::builtin(&experiment.setup.machine)?, keys, axis, experiment })
    }

    /// The policy at this place of the set-up, and the preset that it starts from.
    fn policy(&self, place: usize) -> Result<(Policy, &str)> {
        let choice = self.experiment.setup.policies.get(place).context("the set-up has too few policies")?;
        let mut policy = policy::parse(&choice.preset)?;
        for (key, value) in choice.settings.iter().filter(|(key, _)| !is_of_kernel(key)) {
            policy.set(key, value).map_err(|error| anyhow::anyhow!("policy {}: {error}", choice.id))?;
        }
        Ok((policy, &choice.preset))
    }

    /// The names of the policies.
    pub(super) fn policy_names(&self) -> impl Iterator<Item = &str> {
        self.experiment.setup.policies.iter().map(|policy| policy.id.as_str())
    }

    /// A number of the set-up.
    pub(crate) fn number(&self, parameter: &str) -> Result<f64> {
        match self.experiment.setup.parameters.get(parameter).map(|parameter| &parameter.value) {
            Some(Value::Number(number)) => Ok(*number),
            _ => bail!("no number {parameter} in the set-up"),
        }
    }

    /// The experiment's workload as the set-up has it, with `settings` beside.
    pub(crate) fn workload(&self, settings: &[String]) -> Result<Workload> {
        self.workload_called(&self.experiment.setup.workload, settings)
    }

    /// The workload `name` with each number of the set-up that it has a parameter for, and `settings` beside.
    pub(crate) fn workload_called(&self, name: &str, settings: &[String]) -> Result<Workload> {
        let known = workload(name, &[])?;
        let of_setup = self.experiment.setup.parameters.iter().filter_map(|(key, parameter)| match parameter.value {
            Value::Number(number) if known.parameters().get(key).is_some() => Some(format!("{key}={number}")),
            _ => None,
        });
        workload(name, &of_setup.chain(settings.iter().cloned()).collect::<Vec<_>>())
    }

    /// A run on the experiment's machine under the policy at the place `policy`, in the kernel of its preset, or as
    /// the set-up says where the document's kernel differs from that. It has noise, and no limit unless the caller sets
    /// one.
    pub(crate) fn run(&self, policy: usize, workload: Workload) -> Result<Run<'_>> {
        let settings = &self.experiment.setup.policies.get(policy).context("the set-up has too few policies")?.settings;
        let (policy, preset) = self.policy(policy)?;
        let mut kernel = kernel_of(preset);
        for (key, value) in settings.iter().filter(|(key, _)| is_of_kernel(key)) {
            set(&mut kernel, &format!("{key}={value}"))?;
        }
        let kernel = KernelSettings {
            per_vma_locks: self.one_of("per_vma_locks", PER_VMA_LOCKS)?.unwrap_or(kernel.per_vma_locks),
            sweep: self.one_of("sweep", SWEEPS)?,
            ..kernel
        };
        Ok(Run { kernel, noise: Noise::On, ..Run::new(&self.machine, policy, workload) })
    }

    /// What the set-up says by one of `words` as its `parameter`; none if it does not have that.
    fn one_of<T: Copy>(&self, parameter: &str, words: [(&str, T); 2]) -> Result<Option<T>> {
        let Some(value) = self.experiment.setup.parameters.get(parameter) else { return Ok(None) };
        let [(first, _), (second, _)] = words;
        let meant = words.into_iter().find(|(word, _)| matches!(&value.value, Value::Text(text) if text == word));
        let (_, meant) = meant.with_context(|| format!("{parameter}: must be {first:?} or {second:?}"))?;
        Ok(Some(meant))
    }

    /// `run` once for each seed of the set-up.
    pub(crate) fn seeds<'l>(&self, run: &Run<'l>) -> Result<Vec<Run<'l>>> {
        let seeds = self.seeds_of(self.number("seeds")? as u64);
        Ok(seeds.map(|seed| Run { seed, ..run.clone() }).collect())
    }

    /// The seeds of `runs` runs.
    pub(crate) fn seeds_of(&self, runs: u64) -> Range<u64> {
        FIRST_SEED..FIRST_SEED + runs
    }

    /// The part of `run` from the one end of the window that the set-up has to the other, for each seed.
    pub(super) fn windows(&self, run: &Run<'_>) -> Result<Vec<Window>> {
        let end = |end: &str| {
            let limit_cycles = Some(self.milliseconds(self.number(end)?));
            self.seeds(&Run { limit_cycles, ..run.clone() })
        };
        let ends = [end("window_begin")?, end("window_end")?];
        let outcomes = ends.par_iter().map(|runs| execute_all(runs)).collect::<Result<Vec<_>>>()?;
        let [short, long] = <[_; 2]>::try_from(outcomes).unwrap_or_default();
        Ok(short.into_iter().zip(long).map(|(short, long)| Window { short: Some(short), long }).collect())
    }

    /// The cycles of a number of simulated milliseconds.
    pub(crate) fn milliseconds(&self, milliseconds: f64) -> u64 {
        (milliseconds * self.machine.system.frequency_mhz.value * 1e3) as u64
    }

    /// The expected figure with our value, and the samples of which it is the mean, if there are several.
    pub(crate) fn figure(&self, key: Key, ours: f64, samples: &[f64]) -> Result<Figure> {
        Ok(Figure::new(self.expected(key)?, ours).over(samples))
    }

    /// The expected figure as the mean of ours, a seed each.
    pub(crate) fn mean(&self, key: Key, samples: &[f64]) -> Result<Figure> {
        self.figure(key, mean(samples), samples)
    }

    /// What the file expects of this figure.
    pub(super) fn expected(&self, key: Key) -> Result<&Expected> {
        let place = self.keys.iter().position(|expected| *expected == key);
        let place = place.with_context(|| format!("{} expects no such figure: {key:?}", self.experiment.id))?;
        Ok(&self.experiment.expected[place])
    }

    /// What the document gives, if it gives a number.
    pub(crate) fn published(&self, key: Key) -> Result<Option<f64>> {
        Ok(self.expected(key)?.published)
    }

    /// The notes, with the number that each `{name}` stands for: the note's own, one of the set-up, or one of `facts`.
    pub(crate) fn notes(&self, facts: &[(&'static str, f64)]) -> Result<Vec<String>> {
        let number = |note: &Note, name: &str| {
            let parameter = note.numbers.get(name).or_else(|| self.experiment.setup.parameters.get(name));
            let fact = facts.iter().find(|(fact, _)| *fact == name).map(|(_, value)| *value);
            match (parameter.map(|parameter| &parameter.value), fact) {
                (Some(Value::Number(value)), _) => Ok(value.to_string()),
                (None, Some(value)) => Ok(value.to_string()),
                _ => bail!("experiment {}: a note names {{{name}}}, and there is no such number", self.experiment.id),
            }
        };
        let filled = |note: &Note| {
            let mut parts = note.text.trim().split('{');
            let mut text = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let (name, rest) = part.split_once('}').with_context(|| format!("a note has no }} after {{{part}"))?;
                text += &number(note, name)?;
                text += rest;
            }
            Ok(text)
        };
        self.experiment.notes.iter().map(filled).collect()
    }

    /// The policies side by side, by the first run of each.
    pub(crate) fn compare(&self, title: &str, first: impl IntoIterator<Item = RunOutcome>) -> Table {
        let outcomes: Vec<_> = self.policy_names().zip(first).collect();
        let head = ["quantity"].into_iter().chain(outcomes.iter().map(|(name, _)| *name)).map(String::from).collect();
        let (machine, length) = (&self.experiment.setup.machine, length(&outcomes));
        Table {
            title: format!("{title}, {machine}: seed 1 alone, {length} of simulated time from start to end"),
            head,
            rows: compared_rows(&outcomes),
        }
    }
}

/// How long the runs took, the shortest and the longest.
fn length(outcomes: &[(&str, RunOutcome)]) -> String {
    let milliseconds = outcomes.iter().map(|(_, outcome)| 1e3 * outcome.elapsed_seconds);
    let (low, high) = milliseconds.fold((f64::MAX, 0.0_f64), |(low, high), of| (low.min(of), high.max(of)));
    let [low, high] = [low, high].map(|end| format!("{end:.0}"));
    if low == high { format!("{low} ms") } else { format!("{low} to {high} ms") }
}

/// Executes `runs` in parallel; the outcomes come in the order of the runs.
pub(crate) fn execute_all(runs: &[Run<'_>]) -> Result<Vec<RunOutcome>> {
    runs.par_iter().map(|run| Ok(run.execute()?)).collect()
}

/// Units a second, without the start of the run if it took samples; a start that was not over counts as half of the
/// time. The length of a run is a number of the experiment's file, whose source says what a longer one would give.
pub(crate) fn rate(outcome: &RunOutcome) -> f64 {
    outcome.latest.map_or(outcome.score_per_second, |latest| latest.score_per_second)
}

/// What `of` makes of each outcome.
pub(crate) fn each<T>(outcomes: &[T], of: impl Fn(&T) -> f64) -> Vec<f64> {
    outcomes.iter().map(of).collect()
}

/// A part in the middle of a run: the same run is made twice, to two lengths, and what the shorter one spent is taken
/// off, so that the start of the run does not count. Where there is no shorter one, it is the whole run.
pub(super) struct Window {
    pub(super) short: Option<RunOutcome>,
    pub(super) long: RunOutcome,
}

impl Window {
    /// What `of` counts between begin and end.
    pub(super) fn spent(&self, of: &dyn Fn(&RunOutcome) -> u64) -> f64 {
        of(&self.long) as f64 - self.short.as_ref().map_or(0, of) as f64
    }

    /// The same for each second between them.
    pub(super) fn a_second(&self, of: &dyn Fn(&RunOutcome) -> u64) -> f64 {
        let begin = self.short.as_ref().map_or(0.0, |short| short.elapsed_seconds);
        self.spent(of) / (self.long.elapsed_seconds - begin)
    }
}

/// Whether a setting of a file is the kernel's, and no field of the policy.
fn is_of_kernel(key: &str) -> bool {
    KERNEL_KEYS.iter().any(|(name, _)| *name == key)
}
