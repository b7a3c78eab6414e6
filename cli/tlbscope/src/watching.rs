//! Whom to watch and for how long: what `record`, `explain` and `top` have in common.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use tlbkit_host::recorder::Watched;
use tlbkit_host::trial::{Counting, Quantity, Running};

use tlbkit_output::stopping::{BY_SIGNAL, Stopping};
use tlbkit_output::terminal::{Ending, Format};

/// A command, a process, or all CPUs.
#[derive(Args)]
pub(crate) struct WatchArguments {
    /// One process, and what it starts from now on
    #[arg(long, conflicts_with = "command")]
    pid: Option<i32>,
    /// All CPUs until Ctrl-C, if there is no command
    #[arg(long, conflicts_with = "pid")]
    all_cpus: bool,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// A command; all CPUs are watched while it runs, as what others do decides who must be told of a flush
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

impl WatchArguments {
    /// To watch a command, or all CPUs if none is given.
    pub(crate) fn of_command_or_all(command: &[OsString], duration: Option<f64>) -> Self {
        Self { pid: None, all_cpus: command.is_empty(), duration, command: command.to_vec() }
    }

    /// To watch a process, or all CPUs if none is given.
    pub(crate) fn of_process_or_all(pid: Option<i32>, duration: Option<f64>) -> Self {
        Self { pid, all_cpus: pid.is_none(), duration, command: Vec::new() }
    }

    /// Whether it names somebody, and a sensible time.
    pub(crate) fn check(&self) -> Result<()> {
        if self.pid.is_none() && !self.all_cpus && self.command.is_empty() {
            bail!("nobody to watch: want a command after --, --pid or --all-cpus");
        }
        if let Some(pid) = self.pid {
            let exists = pid > 0 && std::path::Path::new(&format!("/proc/{pid}")).exists();
            ensure!(exists, "--pid {pid}: no such process; ps -e lists those that run");
        }
        if let Some(seconds) = self.duration {
            ensure!(seconds > 0.0 && seconds <= 86_400.0, "--duration {seconds}: must be above 0 and up to 86400");
        }
        Ok(())
    }

    /// Whose events are recorded.
    pub(crate) fn watched(&self) -> Watched {
        self.pid.map_or(Watched::AllCpus, Watched::Process)
    }
}

/// A command, a process or all CPUs while they are watched.
pub(crate) struct Watching {
    command: Option<Running>,
    started: Instant,
    ended: Option<Duration>,
    limit: Option<Duration>,
    stopping: Stopping,
}

/// What is known when the watching has ended.
pub(crate) struct WatchedRun {
    /// The command's process.
    pub(crate) pid: Option<i32>,
    /// How long.
    pub(crate) seconds: f64,
    /// The command's exit status, as a shell gives it: 128 and the signal's number if one ended it. None without a
    /// command, or if it runs on.
    pub(crate) status: Option<u8>,
    /// CPU time of the command and what it started, as the kernel counts it, in seconds; none if it has not ended.
    pub(crate) cpu_seconds: Option<f64>,
}

impl WatchedRun {
    /// As the command ended, if there was one.
    pub(crate) fn ending(&self) -> Ending {
        self.status.map_or(Ending::AsExpected, Ending::AsCommand)
    }
}

impl Watching {
    /// Starts the command, if there is one. Under `--json` it writes to standard error: standard output is ours alone.
    pub(crate) fn start(subject: &WatchArguments, format: Format, stopping: Stopping) -> Result<Self> {
        let mut words = subject.command.iter();
        let command = words.next().map(|program| {
            let mut command = Command::new(program);
            if format == Format::Json {
                command.stdout(std::io::stderr());
            }
            command.args(words);
            Running::start(command, Counting::NothingElse)
        });
        let limit = subject.duration.map(Duration::from_secs_f64);
        Ok(Self { command: command.transpose()?, started: Instant::now(), ended: None, limit, stopping })
    }

    /// Whether the command ended, the time is up, somebody pressed Ctrl-C, or the terminal is gone.
    pub(crate) fn is_over(&mut self) -> Result<bool> {
        let has_ended = match &mut self.command {
            Some(command) => command.ended()?.is_some(),
            None => false,
        };
        let is_over =
            has_ended || self.stopping.is_wanted() || self.limit.is_some_and(|limit| self.started.elapsed() >= limit);
        if is_over && self.ended.is_none() {
            self.ended = Some(self.started.elapsed());
        }
        Ok(is_over)
    }

    /// Ends the watching. A command that has not ended runs on if its time was up. A signal that ended us is passed on
    /// to it, and it is waited for a while.
    pub(crate) fn finish(mut self) -> Result<WatchedRun> {
        let stopped_by = self.stopping.signal();
        let count = match &mut self.command {
            Some(command) => {
                let mut waited = Duration::ZERO;
                if stopped_by != 0 && command.ended()?.is_none() {
                    command.pass_on(stopped_by);
                    while command.ended()?.is_none() && waited < PATIENCE {
                        sleep(LOOK_EVERY);
                        waited += LOOK_EVERY;
                    }
                }
                command.ended()?.cloned()
            }
            None => None,
        };
        let seconds = self.ended.unwrap_or_else(|| self.started.elapsed()).as_secs_f64();
        let status = count.as_ref().map(|count| exit_status(count.status));
        let cpu_seconds = count.and_then(|count| count.get(Quantity::Cpu));
        Ok(WatchedRun { pid: self.command.as_ref().map(Running::id), seconds, status, cpu_seconds })
    }
}

/// The exit status as a shell gives it: 128 and the number of the signal, if a signal ended the command.
pub(crate) fn exit_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal));
    number.unwrap_or(1) as u8
}

/// How long a command that is to end may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often to look whether it is over: what a short command's time is off by.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(2);
