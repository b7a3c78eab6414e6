//! A run whose machine, policy and workload are given by name, as `run` takes it and `sweep` writes it into a plan.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Error, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tlbkit_machine::{MOST_CPUS, Machine, Noise, Priors};
use tlbkit_output::nearest::unknown;
use tlbkit_output::note;
use tlbkit_output::policy;
use tlbkit_output::terminal::plain;
use tlbkit_sim::{Run, RunError, RunOutcome};
use tlbkit_workloads::{Parameter, ParameterError, Workload};

use super::preset_kernel::kernel_of;

/// The longest run that is of use to anybody: a simulated day.
const MOST_MILLISECONDS: u64 = 86_400_000;

/// The largest machine file: ours have some 20 KB.
const MOST_BYTES: u64 = 1 << 20;

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

/// One run, by names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedRun {
    pub(crate) workload: String,
    pub(crate) machine: String,
    pub(crate) policy: String,
    /// The machine's own number if it is none.
    pub(crate) cpus: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) set: Vec<String>,
    pub(crate) milliseconds: u64,
    pub(crate) noise: Noise,
}

impl NamedRun {
    /// Whether everything that it names exists, and its time and its CPUs make sense.
    pub(crate) fn check(&self) -> Result<()> {
        let milliseconds = self.milliseconds;
        let is_sensible = (1..=MOST_MILLISECONDS).contains(&milliseconds);
        ensure!(is_sensible, "{milliseconds} milliseconds: must be 1 to {MOST_MILLISECONDS}");
        if let Some(cpus) = self.cpus {
            ensure!((1..=MOST_CPUS).contains(&cpus), RunError::Cpus(cpus));
        }
        machine(&self.machine)?;
        check_workload(&self.workload, &self.set)?;
        policy::parse(&self.policy).map(drop)
    }

    /// Executes it; `clock` shows how far it has come.
    pub(crate) fn execute(&self, clock: &AtomicU64) -> Result<RunOutcome> {
        self.execute_on(&machine(&self.machine)?, Some(clock))
    }

    /// Executes it on `machine`, which has been read from where the names say.
    pub(crate) fn execute_on(&self, machine: &Machine, clock: Option<&AtomicU64>) -> Result<RunOutcome> {
        let workload = workload(&self.workload, &self.set)?;
        let mut run = Run::new(machine, policy::parse(&self.policy)?, workload);
        run.kernel = kernel_of(&self.policy);
        run.cpus = self.cpus.unwrap_or(run.cpus);
        run.seed = self.seed;
        let limit_cycles = (self.milliseconds as f64 * machine.system.frequency_mhz.value * 1e3) as u64;
        run.limit_cycles = Some(limit_cycles).filter(|_| !workload.ends_by_itself());
        run.sample_cycles = run.limit_cycles.map(|limit| limit.div_ceil(SAMPLES));
        run.noise = self.noise;
        run.clock = clock;
        run.execute().with_context(|| format!("{} under {}", self.workload, self.policy))
    }

    /// The names and what came out.
    pub(crate) fn row(&self, outcome: &RunOutcome) -> Result<Value> {
        let mut row = serde_json::to_value(self)?;
        row["outcome"] = serde_json::to_value(outcome)?;
        Ok(row)
    }
}

/// A built-in machine, or a file of one.
pub(crate) fn machine(name: &str) -> Result<Machine> {
    if Machine::names().any(|known| known == name) {
        return Ok(Machine::builtin(name)?);
    }
    let machine = Machine::parse(name, &text(name)?)?;
    let own = &machine.name;
    let is_name = !own.trim().is_empty() && !own.contains(char::is_control);
    ensure!(is_name, "{name}: name = {own:?}: must be a name in plain signs");
    Ok(machine)
}

/// Prints the caution of a machine's file to standard error, if it has one: no outcome shows it.
pub(crate) fn say_caution(machine: &Machine) {
    if let Some(caution) = &machine.caution {
        let said = format!("machine {} says of itself: {caution}", machine.name);
        note!("tlbkit: {}", plain(&said.replace('\n', "\\n")));
    }
}

/// The priors of a built-in machine, or of a file of one.
pub(crate) fn priors(name: &str) -> Result<Priors> {
    if Machine::names().any(|known| known == name) {
        return Ok(Priors::builtin(name)?);
    }
    Ok(Priors::parse(name, &text(name)?)?)
}

/// The text of the file of a machine that is not built in. The file is read once, because a pipe cannot be read twice,
/// and because all runs must have the same machine even if the file changes meanwhile.
fn text(name: &str) -> Result<Arc<str>> {
    static TEXTS: Mutex<BTreeMap<String, Arc<str>>> = Mutex::new(BTreeMap::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = texts.get(name) {
        return Ok(Arc::clone(text));
    }
    let unknown = || unknown("machine", name, Machine::names(), "machines");
    ensure!(!name.is_empty(), unknown());
    ensure!(Path::new(name).exists(), "{}, and no such file is there", unknown());
    let in_file = || format!("cannot read {name}");
    let mut bytes = Vec::new();
    let file = File::open(name).with_context(in_file)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).with_context(in_file)?;
    ensure!(bytes.len() as u64 <= MOST_BYTES, "{name}: no machine file: must be at most {MOST_BYTES} bytes");
    let text: Arc<str> = String::from_utf8(bytes).with_context(|| format!("{name}: no machine file"))?.into();
    texts.insert(name.to_owned(), Arc::clone(&text));
    Ok(text)
}

/// The file of a built-in machine.
pub(crate) fn machine_file(name: &str) -> Result<&'static str> {
    Machine::text(name).with_context(|| unknown("machine", name, Machine::names(), "machines"))
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

/// Refuses an unknown workload or parameter, and a parameter that is set twice, whose first value would be lost.
pub(crate) fn check_workload(name: &str, parameters: &[String]) -> Result<()> {
    workload(name, parameters)?;
    for (at, parameter) in parameters.iter().enumerate() {
        let own = key(parameter);
        let is_set = parameters[..at].iter().any(|before| key(before) == own);
        ensure!(!is_set, "workload {name}: {parameter}: {own} is set before; want each parameter once");
    }
    Ok(())
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
