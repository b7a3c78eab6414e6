//! The command line: `key=value` words. What is wrong is said in one line, with the key, the value and what there is.

use core::fmt;
use core::num::NonZeroU32;

use spin::Once;
use tlbkit::{Features, HostFlush, Policy, TextError};
use tlbkit_workloads::{ParameterError, Task, Workload};

use crate::fault::Fault;
use crate::layout::{MAX_CPUS, MAX_MONITORED_CPUS};
use crate::user::race;

/// What the kernel is booted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BootMode {
    /// To run one workload.
    Run,
    /// To check whether the CPU obeys the manual.
    Rules,
    /// To time instructions and interrupts.
    Bench,
}

/// The command line, read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandLine {
    pub(crate) mode: BootMode,
    /// As it was called on the command line.
    pub(crate) workload_name: &'static str,
    pub(crate) workload: Workload,
    pub(crate) first_task: fn(Workload) -> Task,
    pub(crate) policy_name: &'static str,
    pub(crate) policy: Policy,
    pub(crate) cpus: u32,
    pub(crate) seed: u64,
    /// How long a workload without a number of rounds goes on.
    pub(crate) limit_cycles: u64,
    /// Of the cycles that a program computes, those that it really spends.
    pub(crate) compute_percent: u64,
    pub(crate) fault: Fault,
    /// An idle CPU goes offline before it halts, and comes online again.
    pub(crate) naps: bool,
    /// CPUs in ring 3 are not interrupted for flushes of kernel addresses.
    pub(crate) isolated: bool,
    /// The kernel itself runs in ring 3, on a software TLB.
    pub(crate) monitor: Option<Monitor>,
}

/// The settings of the monitor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Monitor {
    /// What the CPU of its software TLB can do.
    pub(crate) features: Features,
    /// Pages that one INVLPGB of that CPU takes; none if it does not have the instruction.
    pub(crate) broadcast_pages: Option<NonZeroU32>,
    /// What its host flushes of CPUs that it has taken away; with `None` it takes none.
    pub(crate) host_flush: HostFlush,
    /// Speculative walks at each trap.
    pub(crate) guesses: u32,
}

impl Monitor {
    /// The settings by default.
    pub(crate) const USUAL: Self = Self {
        features: Features { pcid: true, invpcid: true },
        broadcast_pages: None,
        host_flush: HostFlush::None,
        guesses: 2,
    };
}

static GIVEN: Once<CommandLine> = Once::new();

/// The command line that the kernel was booted with.
pub(crate) fn get() -> &'static CommandLine {
    GIVEN.wait()
}

/// What is wrong with the command line.
#[derive(Debug)]
pub(crate) enum Error {
    /// A word without `=`.
    NotAWord(&'static str),
    /// No such key.
    Key(&'static str),
    /// No such value.
    Value { key: &'static str, value: &'static str, must_be: &'static str },
    /// The policy has no such text.
    Policy(TextError<'static>),
    /// The workload refused a setting.
    Setting(ParameterError<'static>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAWord(word) => write!(f, "{word}: must be key=value"),
            Self::Key(key) => write!(f, "{key}: no such key; there are {KEYS}"),
            Self::Value { key, value, must_be } => write!(f, "{key}={value}: must be {must_be}"),
            Self::Policy(error) => write!(f, "policy: {error}"),
            Self::Setting(error) => write!(f, "set: {error}"),
        }
    }
}

const KEYS: &str = "mode, workload, set, policy, with, cpus, seed, limit_ms, \
    compute, fault, naps, isolated, monitor, pcid, invpcid, broadcast, host, guesses";

/// A machine of unknown clock is taken to have this many cycles in a millisecond.
const CYCLES_PER_MS: u64 = 2_000_000;

impl Default for CommandLine {
    fn default() -> Self {
        let workload_name = "flushsizes";
        Self {
            mode: BootMode::Run,
            workload_name,
            workload: tlbkit_workloads::by_name(workload_name).expect("a workload of the list"),
            first_task: Workload::first_task,
            policy_name: "tlbkit",
            policy: Policy::default(),
            cpus: 1,
            seed: 1,
            limit_cycles: 1000 * CYCLES_PER_MS,
            compute_percent: 0,
            fault: Fault::None,
            naps: false,
            isolated: false,
            monitor: None,
        }
    }
}

/// Reads the command line, on the first CPU, before anything asks for it.
///
/// # Errors
/// What is wrong with the first word that is.
pub(crate) fn read(text: &'static str) -> Result<&'static CommandLine, Error> {
    let mut line = CommandLine::default();
    for word in text.split_ascii_whitespace() {
        let (key, value) = word.split_once('=').ok_or(Error::NotAWord(word))?;
        line.set(key, value)?;
    }
    line.check()?;
    Ok(GIVEN.call_once(|| line))
}

impl CommandLine {
    fn set(&mut self, key: &'static str, value: &'static str) -> Result<(), Error> {
        let number = |most, must_be| number(key, value, most, must_be);
        let on = || flag(key, value);
        match key {
            "mode" if value == "run" => self.mode = BootMode::Run,
            "mode" if value == "rules" => self.mode = BootMode::Rules,
            "mode" if value == "bench" => self.mode = BootMode::Bench,
            "mode" => return Err(Error::Value { key, value, must_be: "run, rules or bench" }),
            "workload" => {
                let must_be = "race, races, readers, or a workload of `tlbkit list workloads`";
                let (name, first_task): (_, fn(Workload) -> Task) = match value {
                    "race" => ("madvise1", race::first_task),
                    "races" => ("madvise1", race::parent),
                    "readers" => ("madvise1", race::library),
                    _ => (value, Workload::first_task),
                };
                self.workload = tlbkit_workloads::by_name(name).ok_or(Error::Value { key, value, must_be })?;
                (self.workload_name, self.first_task) = (value, first_task);
            }
            "set" => value.split(',').try_for_each(|one| self.workload.set(one)).map_err(Error::Setting)?,
            "policy" => {
                self.policy = Policy::parse(value).map_err(Error::Policy)?;
                self.policy_name = value;
            }
            "with" => self.policy.change(value).map_err(Error::Policy)?,
            "cpus" => self.cpus = number(MAX_CPUS as u64, "1 to 64")?.max(1) as u32,
            "seed" => self.seed = number(u64::MAX, "a whole number")?,
            "limit_ms" => self.limit_cycles = number(86_400_000, "0 to 86400000")? * CYCLES_PER_MS,
            "compute" => self.compute_percent = number(100, "0 to 100")?,
            "fault" => {
                self.fault = Fault::by_name(value).ok_or(Error::Value { key, value, must_be: Fault::NAMES })?;
            }
            "naps" => self.naps = on()?,
            "isolated" => self.isolated = on()?,
            "monitor" => self.monitor = on()?.then_some(Monitor::USUAL),
            "pcid" | "invpcid" | "broadcast" | "host" | "guesses" => self.set_monitor(key, value)?,
            _ => return Err(Error::Key(key)),
        }
        Ok(())
    }

    fn set_monitor(&mut self, key: &'static str, value: &'static str) -> Result<(), Error> {
        let monitor = self.monitor.as_mut().ok_or(Error::Value { key, value, must_be: "behind monitor=on" })?;
        match key {
            "pcid" => monitor.features.pcid = flag(key, value)?,
            "invpcid" => monitor.features.invpcid = flag(key, value)?,
            "broadcast" => {
                monitor.broadcast_pages = NonZeroU32::new(number(key, value, 1 << 16, "0 to 65536")? as u32);
            }
            "host" => {
                monitor.host_flush = match value {
                    "none" => HostFlush::None,
                    "translations" => HostFlush::Translations,
                    "paths" => HostFlush::TranslationsAndPaths,
                    _ => return Err(Error::Value { key, value, must_be: "none, translations or paths" }),
                }
            }
            _ => monitor.guesses = number(key, value, 1000, "0 to 1000")? as u32,
        }
        Ok(())
    }

    /// Refuses settings that exclude each other.
    fn check(&self) -> Result<(), Error> {
        let refuse = |must_be| Err(Error::Value { key: "monitor", value: "on", must_be });
        match self.monitor {
            Some(_) if self.cpus > MAX_MONITORED_CPUS as u32 => refuse("off with more than 8 CPUs"),
            Some(_) if self.mode == BootMode::Bench => refuse("off with mode=bench"),
            _ => Ok(()),
        }
    }
}

fn number(key: &'static str, value: &'static str, most: u64, must_be: &'static str) -> Result<u64, Error> {
    value.parse().ok().filter(|&number| number <= most).ok_or(Error::Value { key, value, must_be })
}

fn flag(key: &'static str, value: &'static str) -> Result<bool, Error> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::Value { key, value, must_be: "on or off" }),
    }
}
