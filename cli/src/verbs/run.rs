//! `tlbkit run`: one workload on one machine under several policies, side by side.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tlbkit_sim::engine::Cause;
use tlbkit_sim::machine::{MOST_CPUS, Machine};
use tlbkit_sim::{Outcome, Run, RunError};
use tlbkit_workloads::Workload;

use crate::output::table::grid;
use crate::{Ending, Format, progress, settings};

/// What to run.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit run madvise1 --cpus 2\n  \
    tlbkit run ebizzy-arena-old --machine ivybridge-8thread --policy linux-3.13,linux-3.14,linux-6.18:ceiling=0 \
    --set threads=4")]
pub(crate) struct Options {
    /// A workload of `tlbkit list workloads`
    workload: String,
    /// A machine of `tlbkit list machines`, or a file
    #[arg(long, default_value = "skylake-desktop-pti")]
    machine: String,
    /// Policies: PRESET[:KEY=VALUE[+KEY=VALUE...]], separated by commas; see `tlbkit list policies` and `list settings`
    #[arg(long, value_delimiter = ',', default_value = "tlbkit,linux-6.18")]
    policy: Vec<String>,
    /// CPUs; the machine's own number by default
    #[arg(long, allow_negative_numbers = true)]
    cpus: Option<usize>,
    /// A parameter of the workload, of `tlbkit list parameters`; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE")]
    parameters: Vec<String>,
    /// Simulated milliseconds for a workload that does not end by itself: one whose `rounds` are 0
    #[arg(long, default_value_t = 20, allow_negative_numbers = true)]
    milliseconds: u64,
    /// Where random numbers come from
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
}

/// The longest run that is of use to anybody: a simulated day.
const MOST_MILLISECONDS: u64 = 86_400_000;

/// One run, by names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Point {
    pub(crate) workload: String,
    pub(crate) machine: String,
    pub(crate) policy: String,
    /// The machine's own number if it is none.
    pub(crate) cpus: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) set: Vec<String>,
    pub(crate) milliseconds: u64,
}

impl Point {
    /// Whether everything that it names exists, and its time and its CPUs make sense.
    pub(crate) fn check(&self) -> Result<()> {
        let milliseconds = self.milliseconds;
        let is_sensible = (1..=MOST_MILLISECONDS).contains(&milliseconds);
        ensure!(is_sensible, "{milliseconds} milliseconds: must be 1 to {MOST_MILLISECONDS}");
        if let Some(cpus) = self.cpus {
            ensure!((1..=MOST_CPUS).contains(&cpus), RunError::Cpus(cpus));
        }
        machine(&self.machine)?;
        workload(&self.workload, &self.set)?;
        settings::policy(&self.policy).map(drop)
    }

    pub(crate) fn execute(&self) -> Result<Outcome> {
        self.execute_on(&machine(&self.machine)?)
    }

    /// Executes it on `machine`, which has been read from where the point says.
    pub(crate) fn execute_on(&self, machine: &Machine) -> Result<Outcome> {
        let workload = workload(&self.workload, &self.set)?;
        let mut run = Run::new(machine, settings::policy(&self.policy)?, workload);
        run.cpus = self.cpus.unwrap_or(run.cpus);
        run.seed = self.seed;
        let limit_cycles = (self.milliseconds as f64 * machine.system.frequency_mhz.value * 1e3) as u64;
        run.limit_cycles = Some(limit_cycles).filter(|_| !workload.ends_by_itself());
        run.execute().with_context(|| format!("{} under {}", self.workload, self.policy))
    }

    /// The point and what came out.
    pub(crate) fn row(&self, outcome: &Outcome) -> Result<Value> {
        let mut row = serde_json::to_value(self)?;
        row["outcome"] = serde_json::to_value(outcome)?;
        Ok(row)
    }
}

/// Runs it.
pub(crate) fn execute(options: &Options, format: Format) -> Result<Ending> {
    let points = options.points();
    points.iter().try_for_each(Point::check)?;
    let bar = progress::bar(points.len());
    let outcome = |point: &Point| point.execute().inspect(|_| bar.inc(1));
    let outcomes = points.par_iter().map(outcome).collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    match format {
        Format::Json => {
            for (point, outcome) in points.iter().zip(&outcomes) {
                println!("{}", point.row(outcome)?);
            }
        }
        Format::Text => {
            let named: Vec<_> = points.iter().map(|point| point.policy.as_str()).zip(outcomes).collect();
            println!("{}\n{}", options.heading()?, compare(&named));
        }
    }
    Ok(Ending::Fine)
}

impl Options {
    /// What the table is about: what ran, where and how long.
    fn heading(&self) -> Result<String> {
        let Self { workload: name, seed, milliseconds, .. } = self;
        let machine = machine(&self.machine)?;
        let cpus = self.cpus.unwrap_or(machine.system.cpus.value as usize);
        let about = tlbkit_workloads::describe(name).unwrap_or_default();
        let ends = workload(name, &self.parameters)?.ends_by_itself();
        let length = if ends { "all rounds".to_owned() } else { format!("{milliseconds} ms") };
        let place = format!("on {} with {cpus} CPUs, {length}, seed {seed}", machine.name);
        Ok(format!("{name}: {about}\n{place}; cycles are of all CPUs\n"))
    }

    /// A point for each policy.
    fn points(&self) -> Vec<Point> {
        let point = |policy: &String| Point {
            workload: self.workload.clone(),
            machine: self.machine.clone(),
            policy: policy.clone(),
            cpus: self.cpus,
            seed: self.seed,
            set: self.parameters.clone(),
            milliseconds: self.milliseconds,
        };
        self.policy.iter().map(point).collect()
    }
}

/// A built-in machine, or a file of one.
pub(crate) fn machine(name: &str) -> Result<Machine> {
    if Machine::names().any(|known| known == name) {
        return Ok(Machine::builtin(name)?);
    }
    if std::path::Path::new(name).exists() {
        return Ok(Machine::load(name)?);
    }
    let names: Vec<_> = Machine::names().collect();
    bail!("no machine {name}, and no such file: there are {}", names.join(", "))
}

/// A workload with its parameters.
pub(crate) fn workload(name: &str, parameters: &[String]) -> Result<Workload> {
    let names = || tlbkit_workloads::names().collect::<Vec<_>>().join(", ");
    let mut workload =
        tlbkit_workloads::by_name(name).with_context(|| format!("no workload {name}: there are {}", names()))?;
    for parameter in parameters {
        workload.set(parameter).map_err(|error| anyhow::anyhow!("workload {name}: {error}"))?;
    }
    Ok(workload)
}

type Row = (&'static str, fn(&Outcome) -> String);

/// What is compared, a row a quantity.
const ROWS: &[Row] = &[
    ("score a second", |o| format!("{:.0}", o.score_per_second)),
    ("flush interrupts sent", |o| o.ipis.sent.to_string()),
    ("  of them needed", |o| ratio(o.flushes.interrupts.needed, o.flushes.interrupts.done)),
    ("flushes", |o| o.flushes.flushes.to_string()),
    ("  of everything", |o| o.flushes.full_flushes.to_string()),
    ("pages invalidated singly", |o| o.flushes.pages.done.to_string()),
    ("  of them needed", |o| ratio(o.flushes.pages.needed, o.flushes.pages.done)),
    ("switches that kept entries", |o| o.flushes.switches_kept.to_string()),
    ("switches that flushed", |o| o.flushes.switches_flushed.to_string()),
    ("page walks", |o| o.tlb.walks.to_string()),
    ("  refilling what was flushed", |o| o.tlb.refills.to_string()),
    ("cycles: user", |o| share(o, Cause::User)),
    ("cycles: kernel", |o| share(o, Cause::Kernel)),
    ("cycles: faults", |o| share(o, Cause::Fault)),
    ("cycles: switch path", |o| share(o, Cause::Switch)),
    ("cycles: own invalidations", |o| share(o, Cause::FlushLocal)),
    ("cycles: telling others", |o| share(o, Cause::FlushSend)),
    ("cycles: waiting for answers", |o| share(o, Cause::FlushWait)),
    ("cycles: answering", |o| share(o, Cause::Interrupt)),
    ("cycles: walks, user", |o| share(o, Cause::WalkUser)),
    ("cycles: walks, kernel", |o| share(o, Cause::WalkKernel)),
    ("cycles: locks", |o| share(o, Cause::LockSpin)),
    ("cycles: idle", |o| share(o, Cause::Idle)),
];

/// A table of `outcomes`, a column a policy.
pub(crate) fn compare(outcomes: &[(&str, Outcome)]) -> String {
    let head: Vec<_> =
        ["quantity"].into_iter().chain(outcomes.iter().map(|(name, _)| *name)).map(String::from).collect();
    grid(&head, &compared_rows(outcomes))
}

/// The rows of that table.
pub(crate) fn compared_rows(outcomes: &[(&str, Outcome)]) -> Vec<Vec<String>> {
    ROWS.iter()
        .map(|(title, cell)| [(*title).to_owned()].into_iter().chain(outcomes.iter().map(|(_, o)| cell(o))).collect())
        .collect()
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

fn share(outcome: &Outcome, cause: Cause) -> String {
    ratio(outcome.cycles(cause), outcome.ledger.idle.total() + outcome.ledger.task.total())
}
