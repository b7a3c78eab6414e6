//! One run of a command, and what it used.

use std::fs;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::error::{Error, Result};
use crate::sys::{Counter, end_with_us, reap};

/// What a run is measured by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// User and system time of the command and what it started.
    Cpu,
    /// From its start to its end.
    Wall,
    /// Page faults.
    Faults,
    /// The most memory that one process of it had.
    PeakMemory,
    /// Flushes of the own space, counted by the kernel where the command ran.
    Flushes,
    /// Flushes for which other CPUs were asked.
    Requests,
    /// TLB interrupts on the whole machine, whoever caused them.
    Interrupts,
}

impl Quantity {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] =
        [Self::Cpu, Self::Wall, Self::Faults, Self::PeakMemory, Self::Flushes, Self::Requests, Self::Interrupts];

    /// Name and unit for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time, s",
            Self::Wall => "wall time, s",
            Self::Faults => "page faults",
            Self::PeakMemory => "peak memory, MiB",
            Self::Flushes => "flushes of its own",
            Self::Requests => "other CPUs asked",
            Self::Interrupts => "TLB interrupts, machine",
        }
    }
}

/// What one run came to.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    pub(super) status: ExitStatus,
    /// By [`Quantity`]; none for what this machine does not tell.
    pub(super) values: [Option<f64>; Quantity::ALL.len()],
    /// The last line that it wrote to standard error.
    pub(super) said: String,
    /// Somebody wanted it to end.
    pub(super) is_stopped: bool,
}

/// The tracepoint of flushes, below the folder of tracefs.
const FLUSH_IDS: [&str; 2] =
    ["/sys/kernel/tracing/events/tlb/tlb_flush/id", "/sys/kernel/debug/tracing/events/tlb/tlb_flush/id"];
const INTERRUPTS: &str = "/proc/interrupts";
/// How often to look whether somebody wants it to end; a signal is seen at once.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long a command may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(3);
/// A line of a message that goes no further.
const LINE_BYTES: usize = 200;

/// Runs it, with nothing to read, in a process group of its own, and with what it writes thrown away.
pub(super) fn run(mut command: Command, is_stop_wanted: &dyn Fn() -> bool) -> Result<Run> {
    let mut messages = tempfile::tempfile().map_err(Error::kernel("making a file for messages"))?;
    let for_child = messages.try_clone().map_err(Error::kernel("making a file for messages"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(for_child).process_group(0);
    end_with_us(&mut command);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut counters = Counters::open();
    let interrupts = interrupts();
    let started = Instant::now();
    let child = command.spawn().map_err(|source| Error::CannotRun { program, source })?;
    let pid = Pid::from_child(&child);
    let is_stopped = wait(pid, is_stop_wanted)?;
    let wall = started.elapsed().as_secs_f64();
    let (status, usage) = reap(pid)?;
    let interrupts = interrupts.zip(self::interrupts()).map(|(before, after)| after.saturating_sub(before) as f64);
    let [flushes, requests] = counters.read();
    let mebibytes = usage.peak_bytes as f64 / f64::from(1 << 20);
    let values = [
        Some(usage.cpu_seconds),
        Some(wall),
        Some(usage.faults as f64),
        Some(mebibytes),
        flushes,
        requests,
        interrupts,
    ];
    Ok(Run { status, values, said: last_line(&mut messages), is_stopped })
}

/// Waits until it has ended; true if it was made to.
fn wait(child: Pid, is_stop_wanted: &dyn Fn() -> bool) -> Result<bool> {
    let handle = pidfd_open(child, PidfdFlags::empty()).map_err(Error::kernel("pidfd_open"))?;
    let mut asked: Option<Instant> = None;
    loop {
        let mut wanted = [PollFd::new(&handle, PollFlags::IN)];
        match poll(&mut wanted, Some(&LOOK_EVERY)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(asked.is_some()),
            Err(error) => return Err(Error::kernel("poll")(error)),
        }
        match asked {
            None if is_stop_wanted() => {
                asked = Some(Instant::now());
                // The group may be gone already, which is as well.
                let _ = kill_process_group(child, Signal::TERM);
            }
            Some(asked) if asked.elapsed() > PATIENCE => {
                let _ = kill_process_group(child, Signal::KILL);
            }
            _ => {}
        }
    }
}

/// Whether the kernel lets us count flushes.
pub(crate) fn can_count() -> bool {
    Counters::open().0.iter().all(Option::is_some)
}

/// What the kernel counts of the command, where it lets us.
struct Counters([Option<Counter>; 2]);

impl Counters {
    fn open() -> Self {
        let id = FLUSH_IDS.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
        // Linux's numbers of reasons: the own space, without and with others; others asked by interrupt.
        let filters = [c"reason == 2 || reason == 3", c"reason == 4"];
        Self(filters.map(|filter| Counter::open(id?, filter).ok()))
    }

    fn read(&mut self) -> [Option<f64>; 2] {
        self.0.each_mut().map(|counter| Some(counter.as_mut()?.read().ok()? as f64))
    }
}

/// TLB interrupts of all CPUs since the boot, where the kernel counts them.
fn interrupts() -> Option<u64> {
    sum_of_line(&fs::read_to_string(INTERRUPTS).ok()?, "TLB:")
}

fn sum_of_line(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
    Some(line.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum())
}

fn last_line(messages: &mut fs::File) -> String {
    let mut bytes = Vec::new();
    // A message that cannot be read is none.
    let _ = messages.rewind().and_then(|()| messages.take(1 << 20).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(LINE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    fn value(run: &Run, quantity: Quantity) -> Option<f64> {
        run.values[quantity as usize]
    }

    #[test]
    fn what_a_command_and_its_children_used_is_told() {
        let run =
            run(shell("sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; echo oh >&2; exit 7"), &|| false);
        let run = run.unwrap();
        assert_eq!((run.status.code(), run.said.as_str(), run.is_stopped), (Some(7), "oh", false));
        assert!(value(&run, Quantity::Cpu) > Some(0.005), "the child's time counts: {run:?}");
        assert!(value(&run, Quantity::Wall) > Some(0.005) && value(&run, Quantity::Faults) > Some(50.0), "{run:?}");
        assert!((0.2..500.0).contains(&value(&run, Quantity::PeakMemory).unwrap()), "{run:?}");
    }

    #[test]
    fn flushes_are_those_of_the_command_alone() {
        let flushes = |line| value(&run(shell(line), &|| false).unwrap(), Quantity::Flushes);
        let (few, many) = (flushes(":"), flushes("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do (:); done"));
        let (Some(few), Some(many)) = (few, many) else { return println!("skipped: this user may count no flushes") };
        // Each fork takes the right to write away from the pages of the shell, and each copy of a page is a flush.
        assert!(many >= few + 15.0 && many < few + 3000.0, "{few} flushes, with forks {many}");
    }

    #[test]
    fn a_command_that_is_to_end_is_ended_with_all_that_it_started() {
        let started = Instant::now();
        let run = run(shell("sleep 60 & sleep 60"), &|| true).unwrap();
        assert!(run.is_stopped && started.elapsed() < Duration::from_secs(20), "{run:?}");
    }

    #[test]
    fn interrupts_are_summed_over_cpus() {
        let text = "           CPU0       CPU1\nCAL:  5 6 Function call interrupts\n TLB:  31 33   TLB shootdowns\n";
        assert_eq!((sum_of_line(text, "TLB:"), sum_of_line(text, "NMI:")), (Some(64), None));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(Command::new("no-such-program"), &|| false).unwrap_err().to_string();
        assert_eq!(error, "no-such-program: cannot be run");
    }
}
