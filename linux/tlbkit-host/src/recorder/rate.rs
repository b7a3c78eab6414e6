//! How often events come, counted by the kernel for a moment before anybody records them, and what recording
//! them costs.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::cost::EVENT_US;
use super::{Watched, complaint};
use crate::error::{Error, Result};
use crate::sys::end_with_us;
use crate::ticks::CpuTicks;

/// What perf writes for an event, in bytes: perf.data of a program of 492,599 faults was 68.3 MB.
const EVENT_BYTES: f64 = 140.0;

/// Events, and the CPU time in which they came.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EventRate {
    /// Events.
    pub events: f64,
    /// For how long they were counted.
    pub seconds: f64,
    /// CPU time of those that caused them, in seconds.
    pub cpu_seconds: f64,
}

impl EventRate {
    /// What recording adds to that CPU time, in percent of it, at least and at most; none if there was no CPU time.
    #[must_use]
    pub fn added_pct(&self) -> Option<RangeInclusive<f64>> {
        let part = |event_us: f64| 100.0 * self.events * event_us / 1e6 / self.cpu_seconds;
        (self.cpu_seconds > 0.0).then(|| part(EVENT_US[0])..=part(EVENT_US[1]))
    }

    /// The rate that follows from how much `perf` wrote, without counting events.
    #[must_use]
    pub fn of_bytes(bytes: u64, seconds: f64, cpu_seconds: f64) -> Self {
        Self { events: bytes as f64 / EVENT_BYTES, seconds, cpu_seconds }
    }

    /// What `perf` writes for them, in bytes.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.events * EVENT_BYTES
    }

    /// Counts what is watched for so long, and records nothing.
    ///
    /// # Errors
    /// If `perf` does not count.
    pub fn count(events: &[&str], watched: Watched, time: Duration) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(Error::kernel("making a folder for counts"))?;
        let file = folder.path().join("counts");
        let mut command = Command::new("perf");
        command.args(["stat", "--field-separator", ";", "--event", &events.join(",")]).arg("--output").arg(&file);
        match watched {
            Watched::AllCpus => command.arg("--all-cpus"),
            Watched::Process(pid) => command.args(["--pid", &pid.to_string()]),
        };
        command.args(["--", "sleep", &time.as_secs_f64().to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        command.process_group(0);
        end_with_us(&mut command);
        let before = Instant::now();
        let busy = busy_seconds();
        let output = command.output().map_err(Error::of_perf)?;
        let busy = busy.zip(busy_seconds()).map_or(0.0, |(before, after)| after - before);
        let busy_part = busy / before.elapsed().as_secs_f64();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::PerfFailed { said: complaint(&said).unwrap_or("did not count").to_owned() });
        }
        let text = fs::read_to_string(&file).map_err(Error::kernel("reading what perf counted"))?;
        let counted = Counted::of(&text);
        let time = time.as_secs_f64();
        Ok(match watched {
            // A counter of a process counts while that runs. perf took longer than it counted, the CPUs as busy.
            Watched::Process(_) => Self { events: counted.events, seconds: time, cpu_seconds: counted.longest_seconds },
            Watched::AllCpus => Self { events: counted.events, seconds: time, cpu_seconds: busy_part * time },
        })
    }
}

/// What `perf stat` wrote.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Counted {
    /// The sum of all counts.
    events: f64,
    /// How long the counter that counted longest did so, on all CPUs together.
    longest_seconds: f64,
}

impl Counted {
    /// An event that never came has a word instead of a count.
    fn of(text: &str) -> Self {
        let column = |line: &str, at: usize| line.split(';').nth(at).and_then(|cell| cell.trim().parse::<f64>().ok());
        let events = text.lines().filter_map(|line| column(line, 0)).sum();
        let longest_ns = text.lines().filter_map(|line| column(line, 3)).fold(0.0, f64::max);
        Self { events, longest_seconds: longest_ns / 1e9 }
    }
}

/// CPU time of all CPUs since the boot, in seconds, but idle time, waiting for disks, and time that the host took away;
/// none if the kernel does not tell.
#[must_use]
pub fn busy_seconds() -> Option<f64> {
    Some(CpuTicks::now()?.busy as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_recording_adds_is_a_part_of_the_cpu_time() {
        let rate = EventRate { events: 100_000.0, seconds: 1.0, cpu_seconds: 0.5 };
        let added = rate.added_pct().unwrap();
        assert!((added.start() - 12.0).abs() < 1e-9 && (added.end() - 26.0).abs() < 1e-9, "{added:?}");
        assert_eq!(EventRate { events: 1.0, seconds: 1.0, cpu_seconds: 0.0 }.added_pct(), None);
    }

    #[test]
    fn counts_are_summed_and_words_are_none() {
        let text = "# started on Mon\n\n1637;;tlb:tlb_flush;500000000;100.00;;\n\
                    <not counted>;;b:c;0;100.00;;\n3;;d:e;2500000000";
        assert_eq!(Counted::of(text), Counted { events: 1640.0, longest_seconds: 2.5 });
        assert_eq!(Counted::of(""), Counted { events: 0.0, longest_seconds: 0.0 });
    }

    #[test]
    fn events_of_this_machine_are_counted() {
        let available = match super::super::available(&["tlb:tlb_flush", "sched:sched_switch"]) {
            Ok(available) => available,
            Err(error) => return println!("skipped: {error}"),
        };
        let time = Duration::from_millis(300);
        match EventRate::count(&available.events, Watched::AllCpus, time) {
            Ok(rate) => {
                assert!(rate.events > 2.0, "perf's own sleep is two switches at least: {rate:?}");
                let cpus = fs::read_to_string("/proc/stat").unwrap().matches("\ncpu").count() as f64;
                // The kernel rounds each kind of busy time to its tick by itself.
                let most = 1.05 * cpus * 0.3 + 0.08;
                assert!(rate.cpu_seconds > 0.0 && rate.cpu_seconds <= most, "{rate:?} on {cpus} CPUs");
            }
            Err(error) if error.to_string().contains("ermi") => return println!("skipped, no permission: {error}"),
            Err(error) => panic!("{error}"),
        }
        let mut busy = Command::new("sh").args(["-c", "while :; do sleep 0.001; done"]).spawn().unwrap();
        let watched = Watched::Process(busy.id().cast_signed());
        let started = Instant::now();
        // A machine with much else to do gives it little of a short time.
        let mut rates =
            [1, 10, 100].into_iter().map(|times| EventRate::count(&available.events, watched, time * times));
        let rate = rates.find(|rate| !matches!(rate, Ok(rate) if rate.events <= 4.0));
        let wall = started.elapsed().as_secs_f64();
        busy.kill().unwrap();
        busy.wait().unwrap();
        let rate = rate.expect("it sleeps again and again").unwrap();
        assert!(rate.cpu_seconds > 0.0, "{rate:?}");
        assert!(rate.cpu_seconds < 2.0 * wall, "each sleep is waited for: {rate:?} in {wall} s");
    }
}
