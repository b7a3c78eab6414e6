//! Runs: what a person typed ([`Point`]), and what it means ([`RunSpec`]), for which every name was
//! looked up and every file read, once.

mod kernel;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Error, Result, anyhow, ensure};
use serde::Serialize;
use serde_json::Value;
use tlbkit::Policy;
use tlbkit_machine::{MOST_CPUS, Machine, Noise};
use tlbkit_output::nearest::unknown;
use tlbkit_output::note;
use tlbkit_output::terminal::plain;
use tlbkit_sim::{KernelSettings, Run, RunError, RunOutcome};
use tlbkit_workloads::{Parameter, ParameterError, Workload};

pub(crate) use kernel::{KERNEL_KEYS, kernel_of, policy_and_kernel, set};

/// The longest run that is of use to anybody: a simulated day.
const MOST_MILLISECONDS: u64 = 86_400_000;

/// Samples of the score in a run of a given time: enough to tell its start from the rest.
const SAMPLES: u64 = 100;

/// [`Noise`] as a person types it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum NoiseWord {
    /// Ticks, interrupts, steps and starts vary with the seed
    On,
    /// Nothing varies but what the workload draws
    Off,
}

impl From<NoiseWord> for Noise {
    fn from(word: NoiseWord) -> Self {
        match word {
            NoiseWord::On => Self::On,
            NoiseWord::Off => Self::Off,
        }
    }
}

/// A run as it is written down in each row.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Point {
    pub(crate) workload: String,
    pub(crate) machine: String,
    pub(crate) policy: String,
    /// The machine's own number if it is none.
    pub(crate) cpus: Option<usize>,
    /// The machine's own number if it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) guests: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) set: Vec<String>,
    pub(crate) milliseconds: u64,
    pub(crate) noise: Noise,
}

impl Point {
    /// Each of `points` once for each value.
    pub(crate) fn times<T>(points: &[Self], values: &[T], set: impl Fn(&mut Self, &T)) -> Vec<Self> {
        let with = |point: &Self, value: &T| {
            let mut point = point.clone();
            set(&mut point, value);
            point
        };
        points.iter().flat_map(|point| values.iter().map(|value| with(point, value)).collect::<Vec<_>>()).collect()
    }
}

/// The machines that have been read, by the names that were typed. All runs of a name have the same machine, even if
/// its file changes meanwhile or is a pipe.
#[derive(Default)]
pub(crate) struct Machines(BTreeMap<String, Arc<Machine>>);

impl Machines {
    /// A built-in machine, or a file of one.
    fn named(&mut self, name: &str) -> Result<Arc<Machine>> {
        if let Some(machine) = self.0.get(name) {
            return Ok(Arc::clone(machine));
        }
        let is_there = Machine::text(name).is_some() || Path::new(name).exists();
        ensure!(is_there, "{}, and no such file is there", unknown("machine", name, Machine::names(), "machines"));
        let machine = Arc::new(Machine::named(name)?);
        self.0.insert(name.to_owned(), Arc::clone(&machine));
        Ok(machine)
    }

    /// Prints the cautions of their files to standard error: no outcome shows them.
    pub(crate) fn say_cautions(&self) {
        for machine in self.0.values() {
            if let Some(caution) = &machine.caution {
                let said = format!("machine {} says of itself: {caution}", machine.name);
                note!("tlbkit: {}", plain(&said.replace('\n', "\\n")));
            }
        }
    }
}

/// A run of which everything is known.
#[derive(Clone)]
pub(crate) struct RunSpec {
    /// As it was written down.
    pub(crate) point: Point,
    pub(crate) machine: Arc<Machine>,
    pub(crate) workload: Workload,
    policy: Policy,
    kernel: KernelSettings,
}

impl RunSpec {
    /// What `point` means; `machines` are those that have been read, and get the one of this point.
    pub(crate) fn new(point: Point, machines: &mut Machines) -> Result<Self> {
        let milliseconds = point.milliseconds;
        let is_sensible = (1..=MOST_MILLISECONDS).contains(&milliseconds);
        ensure!(is_sensible, "{milliseconds} milliseconds: must be 1 to {MOST_MILLISECONDS}");
        if let Some(cpus) = point.cpus {
            ensure!((1..=MOST_CPUS).contains(&cpus), RunError::Cpus(cpus));
        }
        let machine = machines.named(&point.machine)?;
        let workload = workload_of_person(&point.workload, &point.set)?;
        let (policy, kernel) = policy_and_kernel(&point.policy)?;
        ensure!(
            point.guests.is_none() || machine.host.is_some(),
            "--guests on the machine {}, whose file has no host",
            machine.name
        );
        Ok(Self { point, machine, workload, policy, kernel })
    }

    /// Its CPUs.
    pub(crate) fn cpus(&self) -> usize {
        self.point.cpus.unwrap_or_else(|| self.machine.system.cpus.count())
    }

    /// Executes it; `clock`, if there is one, shows how far it has come.
    pub(crate) fn execute(&self, clock: Option<&AtomicU64>) -> Result<RunOutcome> {
        let Self { point, machine, workload, policy, kernel } = self;
        let mut run = Run::new(machine, *policy, *workload);
        run.kernel = *kernel;
        run.guests = point.guests.unwrap_or(run.guests);
        run.cpus = self.cpus();
        run.seed = point.seed;
        let limit_cycles = (point.milliseconds as f64 * machine.system.frequency_mhz.value * 1e3) as u64;
        run.limit_cycles = Some(limit_cycles).filter(|_| !workload.ends_by_itself());
        run.sample_cycles = run.limit_cycles.map(|limit| limit.div_ceil(SAMPLES));
        run.noise = point.noise;
        run.clock = clock;
        run.execute().with_context(|| format!("{} under {}", point.workload, point.policy))
    }

    /// What was written down, and what came out.
    pub(crate) fn row(&self, outcome: &RunOutcome) -> Result<Value> {
        let mut row = serde_json::to_value(&self.point)?;
        row["outcome"] = serde_json::to_value(outcome)?;
        Ok(row)
    }
}

/// A workload with its parameters.
pub(crate) fn workload(name: &str, parameters: &[String]) -> Result<Workload> {
    let unknown = || unknown("workload", name, tlbkit_workloads::names(), "workloads");
    let mut workload = tlbkit_workloads::by_name(name).with_context(unknown)?;
    for parameter in parameters {
        let known = workload.parameters().list();
        workload.set(parameter).map_err(|error| refused(name, parameter, error, known))?;
    }
    Ok(workload)
}

/// A workload with its parameters, none of which may be set twice: the first value would be lost.
fn workload_of_person(name: &str, parameters: &[String]) -> Result<Workload> {
    for (at, parameter) in parameters.iter().enumerate() {
        let own = key(parameter);
        let is_set = parameters[..at].iter().any(|before| key(before) == own);
        ensure!(!is_set, "workload {name}: {parameter}: {own} is set before; want each parameter once");
    }
    workload(name, parameters)
}

/// The name before the `=`.
fn key(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or_default().trim()
}

/// What is wrong with `parameter`, as an error. The workload is called `name` and has the `known` parameters.
fn refused(name: &str, parameter: &str, error: ParameterError<'_>, known: &[Parameter]) -> Error {
    let why = match error {
        ParameterError::NotASetting(_) | ParameterError::Unknown { name: "", .. } => {
            let such = known.first().map_or("KEY", |known| known.name);
            format!("{parameter:?} is no KEY=VALUE, such as {such}=1")
        }
        ParameterError::Unknown { name: key, .. } => {
            unknown("parameter", key, known.iter().map(|known| known.name), "parameters")
        }
        // It has more digits than the type of the parameter can hold.
        ParameterError::NotANumber { name: key, value } if value.bytes().all(|digit| digit.is_ascii_digit()) => {
            let limits = known.iter().find(|known| known.name == key);
            let limits = limits.map(|Parameter { least, most, .. }| format!("must be {least} to {most}"));
            format!("{parameter}: {}", limits.unwrap_or_default())
        }
        error => error.to_string(),
    };
    anyhow!("workload {name}: {why}")
}
