//! A command that runs, and what the kernel has counted of it when it ends, without any recording.

use std::fs;
use std::process::{Command, ExitStatus};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};
use crate::sys::{Counter, Reaped, reap, reap_if_ended};

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
    /// TLB interrupts on the whole machine, of all programs.
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

/// By [`Quantity`]; none for what this machine does not tell.
pub(super) type Values = [Option<f64>; Quantity::ALL.len()];

/// The tracepoint of flushes, below the folder of tracefs.
const FLUSH_IDS: [&str; 2] =
    ["/sys/kernel/tracing/events/tlb/tlb_flush/id", "/sys/kernel/debug/tracing/events/tlb/tlb_flush/id"];
const INTERRUPTS: &str = "/proc/interrupts";

/// What the kernel counted of one run of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct Count {
    /// How it ended.
    pub status: ExitStatus,
    pub(super) values: Values,
}

impl Count {
    /// One quantity; none if this machine does not tell.
    #[must_use]
    pub fn get(&self, quantity: Quantity) -> Option<f64> {
        self.values[quantity as usize]
    }
}

/// What is counted of a command beside its times, faults and memory, which the kernel always counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counting {
    /// Its flushes, where the kernel lets us. Each of them then takes it a little longer.
    Flushes,
    /// Nothing: it runs as it would alone.
    NothingElse,
}

/// A command that was started, and is counted until it ends. It outlives this.
pub struct Running {
    pid: Pid,
    counters: Counters,
    interrupts: Option<u64>,
    started: Instant,
    count: Option<Count>,
}

impl Running {
    /// Starts it. Nobody else may wait for it.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn start(mut command: Command, counting: Counting) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        // Before the command, so that it is born with them.
        let counters = match counting {
            Counting::Flushes => Counters::open(),
            Counting::NothingElse => Counters::none(),
        };
        let (interrupts, started) = (interrupts(), Instant::now());
        let child = command.spawn().map_err(|source| Error::CannotRun { program, source })?;
        Ok(Self { pid: Pid::from_child(&child), counters, interrupts, started, count: None })
    }

    /// The number of its process.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// What it came to; none while it runs.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<&Count>> {
        if self.count.is_none() {
            self.count = reap_if_ended(self.pid)?.map(|reaped| self.counted(reaped));
        }
        Ok(self.count.as_ref())
    }

    /// Passes a signal on to it, by its number: who ends us wants it to end as well.
    pub fn pass_on(&self, signal: i32) {
        // It may be gone already, which is as well.
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Waits until it has ended, and tells what it came to.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn wait(mut self) -> Result<Count> {
        if let Some(count) = self.count.take() {
            return Ok(count);
        }
        reap(self.pid).map(|reaped| self.counted(reaped))
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    fn counted(&mut self, Reaped { status, usage }: Reaped) -> Count {
        let wall = self.started.elapsed().as_secs_f64();
        let interrupts = self.interrupts.zip(interrupts());
        let [flushes, requests] = self.counters.read();
        let values = [
            Some(usage.cpu_seconds),
            Some(wall),
            Some(usage.faults as f64),
            Some(usage.peak_bytes as f64 / f64::from(1 << 20)),
            flushes,
            requests,
            interrupts.map(|(before, after)| after.saturating_sub(before) as f64),
        ];
        Count { status, values }
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

    const fn none() -> Self {
        Self([None, None])
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

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use std::{io, thread};

    use super::*;

    #[test]
    fn interrupts_are_summed_over_cpus() {
        let text = "           CPU0       CPU1\nCAL:  5 6 Function call interrupts\n TLB:  31 33   TLB shootdowns\n";
        assert_eq!((sum_of_line(text, "TLB:"), sum_of_line(text, "NMI:")), (Some(64), None));
    }

    #[test]
    fn a_command_is_counted_when_it_has_ended_and_not_before() {
        // It ends when its input does, and not by a clock.
        let (input, held) = io::pipe().unwrap();
        let mut reader = Command::new("cat");
        reader.stdin(input);
        let mut reading = Running::start(reader, Counting::NothingElse).unwrap();
        let started = Instant::now();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(reading.ended().unwrap(), None);
        let least_s = started.elapsed().as_secs_f64();
        drop(held);
        while reading.ended().unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(300), "it ends with its input");
            thread::sleep(Duration::from_millis(2));
        }
        let count = reading.ended().unwrap().cloned().unwrap();
        assert!(count.status.success() && count.get(Quantity::Wall) >= Some(least_s), "{count:?}");
        assert_eq!(reading.wait().unwrap(), count, "it is counted once");
    }
}
