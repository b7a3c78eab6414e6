//! What the module of a published result is given to reproduce it, and what it gives back.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use rayon::prelude::*;
use tlbkit::Policy;
use tlbkit_machine::{Machine, Noise};
use tlbkit_output::policy;
use tlbkit_output::svg::{Curve, Draw, Ink, Plot, Point};
use tlbkit_sim::Sweep;
use tlbkit_sim::statistics::mean;
use tlbkit_sim::{KernelSettings, PerVmaLocks, Run, RunOutcome};
use tlbkit_workloads::Workload;

use crate::lab::compare::compared_rows;
use crate::lab::named_run::workload;
use crate::lab::preset_kernel::kernel_of;
use crate::output::report::Table;
use crate::published::experiment::{Experiment, Note, Value};
use crate::published::figure::Figure;

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
    /// The seed of the first of several runs that differ by their seeds; those after it have the next ones.
    pub(crate) first_seed: u64,
}

/// The first seed of an experiment on its file's own machine.
pub(crate) const FIRST_SEED: u64 = 1;

/// How a set-up says who takes a per-VMA lock.
const PER_VMA_LOCKS: [(&str, PerVmaLocks); 2] = [("none", PerVmaLocks::Absent), ("for faults", PerVmaLocks::ForFaults)];
/// How a set-up says what becomes of new pages before a sweep.
const SWEEPS: [(&str, Sweep); 2] = [("drains", Sweep::Drains), ("leaves", Sweep::Leaves)];

impl Reproduction {
    /// The policy that the experiment calls `id`, and the preset that it starts from.
    fn policy(&self, id: &str) -> Result<(Policy, &str)> {
        let choices = &self.experiment.setup.policies;
        let choice = choices.iter().find(|choice| choice.id == id).with_context(|| format!("no policy {id}"))?;
        let mut policy = policy::parse(&choice.preset)?;
        for (key, value) in &choice.settings {
            policy.set(key, value).map_err(|error| anyhow::anyhow!("policy {id}: {error}"))?;
        }
        Ok((policy, &choice.preset))
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

    /// A run on the experiment's machine under the policy that it calls `policy`, in the kernel of its preset, or as
    /// the set-up says where the document's kernel differs from that. It has noise, and no limit unless the caller sets
    /// one.
    pub(crate) fn run(&self, policy: &str, workload: Workload) -> Result<Run<'_>> {
        let (policy, preset) = self.policy(policy)?;
        let kernel = kernel_of(preset);
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

    /// A run as [`run`](Self::run) makes it, which has the length of the set-up and samples of its score.
    pub(crate) fn run_of_length(&self, policy: &str, workload: Workload) -> Result<Run<'_>> {
        let limit_cycles = Some(self.milliseconds(self.number("length")?));
        Ok(Run { limit_cycles, ..self.run_with_samples(policy, workload)? })
    }

    /// A run as [`run`](Self::run) makes it, which notes its score after each stretch of the set-up.
    pub(crate) fn run_with_samples(&self, policy: &str, workload: Workload) -> Result<Run<'_>> {
        let sample_cycles = Some(self.milliseconds(self.number("stretch")?));
        Ok(Run { sample_cycles, ..self.run(policy, workload)? })
    }

    /// `run` once for each seed of the set-up.
    pub(crate) fn seeds<'l>(&self, run: &Run<'l>) -> Result<Vec<Run<'l>>> {
        let seeds = self.seeds_of(self.number("seeds")? as u64);
        Ok(seeds.map(|seed| Run { seed, ..run.clone() }).collect())
    }

    /// The seeds of `runs` runs.
    pub(crate) fn seeds_of(&self, runs: u64) -> Range<u64> {
        self.first_seed..self.first_seed + runs
    }

    /// The expected figure `quantity` as the mean of ours, a seed each.
    pub(crate) fn mean(&self, quantity: &str, samples: &[f64]) -> Result<Figure> {
        Ok(self.figure(quantity, mean(samples))?.over(samples))
    }

    /// The cycles of a number of simulated milliseconds.
    pub(crate) fn milliseconds(&self, milliseconds: f64) -> u64 {
        (milliseconds * self.machine.system.frequency_mhz.value * 1e3) as u64
    }

    /// The expected figure `quantity` with our value.
    pub(crate) fn figure(&self, quantity: &str, ours: f64) -> Result<Figure> {
        self.experiment.figure(quantity, ours)
    }

    /// What the document gives for `quantity`.
    pub(crate) fn published(&self, quantity: &str) -> Result<f64> {
        let expected = self.experiment.expected(quantity)?;
        expected.published.with_context(|| format!("the document gives no {quantity}"))
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
    pub(crate) fn compare(&self, title: &str, outcomes: &[(&str, RunOutcome)]) -> Table {
        let head = ["quantity"].into_iter().chain(outcomes.iter().map(|(name, _)| *name)).map(String::from).collect();
        let (machine, length) = (&self.experiment.setup.machine, length(outcomes));
        Table::Grid {
            title: format!("{title}, {machine}: seed 1 alone, {length} of simulated time from start to end"),
            head,
            rows: compared_rows(outcomes),
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

/// Executes all of `series`, each a run with its seeds, in parallel.
pub(crate) fn execute_series(series: &[Vec<Run<'_>>]) -> Result<Vec<Vec<RunOutcome>>> {
    series.par_iter().map(|runs| execute_all(runs)).collect()
}

/// Units a second, without the start of the run if it took samples; a start that was not over counts as half of the
/// time. The length of a run is a number of the experiment's file, whose source says what a longer one would give.
pub(crate) fn rate(outcome: &RunOutcome) -> f64 {
    outcome.latest.map_or(outcome.score_per_second, |latest| latest.score_per_second)
}

/// The outcomes of the first seed, each with its policy: `outcomes` has those of all seeds, policy by policy.
pub(crate) fn of_first_seed<'p>(
    policies: impl IntoIterator<Item = &'p str>,
    outcomes: impl IntoIterator<Item = Vec<RunOutcome>>,
) -> Vec<(&'p str, RunOutcome)> {
    let first = outcomes.into_iter().filter_map(|seeds| seeds.into_iter().next());
    policies.into_iter().zip(first).collect()
}

/// What `of` makes of each outcome.
pub(crate) fn each<T>(outcomes: &[T], of: impl Fn(&T) -> f64) -> Vec<f64> {
    outcomes.iter().map(of).collect()
}

/// A quantity that a file has for several numbers of tasks: which numbers these are, and the curve of ours beside the
/// published one.
///
/// The quantity, by how its name begins in the file; the number of tasks follows.
#[derive(Clone, Copy)]
pub(super) struct ByTasks(pub(super) &'static str);

impl ByTasks {
    /// What the file calls it for so many.
    pub(super) fn name(self, tasks: u64) -> String {
        format!("{}{tasks}", self.0)
    }

    /// The numbers of tasks that the file expects it for, and the one of them whose outcomes are set out in full.
    pub(super) fn counts(self, reproduction: &Reproduction) -> Result<(Vec<u64>, u64)> {
        let expected = reproduction.experiment.expected.iter();
        let counts = expected.filter_map(|expected| expected.quantity.strip_prefix(self.0)?.parse().ok());
        let (counts, compared) = (Vec::from_iter(counts), reproduction.number("compared")? as u64);
        let name = self.name(compared);
        ensure!(counts.contains(&compared), "compared = {compared}: the file expects no `{name}`");
        Ok((counts, compared))
    }

    /// What is published for these numbers, and `ours`, in their order.
    pub(super) fn curves(self, reproduction: &Reproduction, counts: &[u64], ours: &[f64]) -> Result<Vec<Curve>> {
        let published =
            counts.iter().map(|&tasks| reproduction.published(&self.name(tasks))).collect::<Result<Vec<_>>>()?;
        let point = |(&tasks, &y): (&u64, &f64)| Point { x: tasks as f64, y, spread: None };
        let curve = |ink, label: &str, values: &[f64]| Curve {
            label: label.into(),
            ink,
            tone: 0,
            draw: Draw::Both,
            points: counts.iter().zip(values).map(point).collect(),
        };
        Ok(vec![curve(Ink::Published, "published", &published), curve(Ink::Ours, "ours", ours)])
    }
}

/// The parameters of a set-up that say where the part begins and ends, in milliseconds.
pub(super) const WINDOW_ENDS: [&str; 2] = ["window_begin", "window_end"];

/// A part in the middle of a run: the same run is made twice, to two lengths, and what the shorter one spent is taken
/// off, so that the start of the run does not count.
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
