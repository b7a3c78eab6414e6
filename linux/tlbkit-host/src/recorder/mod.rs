//! `perf` as a recorder of tracepoints: started, asked for what it has so far, and stopped.
//!
//! It is told what to do through a named pipe. `ping` makes it hand out what it has buffered, so a live stream is never
//! older than the last [`Recorder::nudge`], and its answer to the first one says that everything after is recorded.

mod cost;
pub(crate) mod rights;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat, statvfs};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use cost::EVENT_US;
pub use rights::{Available, available};

use crate::error::{Error, Result};
use crate::sys::end_with_us;
use crate::ticks::{Of, process_ticks};

/// How long `perf` may take to begin, on a busy machine: it only ends a hang.
const START: Duration = Duration::from_secs(120);
/// Pages of each CPU's buffer: 16 MiB, some hundred thousand events.
const BUFFER_PAGES: &str = "4096";

/// A clock that samples what each CPU does while it is not idle. Its rate shares no factor with those of other clocks.
const SAMPLES: &str = "cpu-clock/freq=997,call-graph=fp/I";

/// What shows what an event takes: the begin of a call that does nothing.
const EMPTY_CALL: &str = "syscalls:sys_enter_munmap";

/// Whose events are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched {
    /// Everybody's.
    AllCpus,
    /// Those of one process, and of what it starts from now on.
    Process(i32),
}

/// Whether the flush tracepoint says who called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stacks {
    /// Each flush has its call stack, and the CPU's time is sampled, with the kernel's stack.
    Recorded,
    /// Events have no call stacks, nothing is sampled, and flushes of a switch are left out: the least that tells who
    /// flushes.
    Absent,
}

/// What to record.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// Tracepoints, as `group:name`.
    pub events: Vec<&'static str>,
    /// Whose events are recorded.
    pub watched: Watched,
    /// With call stacks or without.
    pub stacks: Stacks,
    /// The file; none for a stream.
    pub file: Option<&'a Path>,
}

/// Bytes that may still be written into `folder` by this user.
///
/// # Errors
/// If the kernel does not tell.
pub fn free_bytes(folder: &Path) -> Result<u64> {
    let found = statvfs(folder).map_err(Error::kernel("statvfs"))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// A `perf` that records. It ends with the thread that started it, and writes what it has before it does.
pub struct Recorder {
    perf: Child,
    control: File,
    answers: File,
    messages: File,
    /// What an empty system call took before, in microseconds; none if this program is not recorded itself.
    call_us: Option<f64>,
    event_us: Option<[f64; 2]>,
    is_stream: bool,
    /// Whether it closes what it has open without us.
    is_left: bool,
    /// Until it records: then it has opened all that is in there.
    folder: Option<TempDir>,
}

impl Recorder {
    /// Starts it. It records when [`Recorder::wait_until_ready`] returns.
    ///
    /// # Errors
    /// If `perf` cannot be started.
    pub fn start(order: &Order<'_>) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(Error::kernel("making a folder for pipes"))?;
        let control = pipe(&folder.path().join("control"))?;
        let answers = pipe(&folder.path().join("answers"))?;
        let messages = tempfile::tempfile_in(folder.path());
        let messages = messages.map_err(Error::kernel("making a file for messages"))?;
        let told = messages.try_clone().map_err(Error::kernel("making a file for messages"))?;
        let stdout = if order.file.is_none() { Stdio::piped() } else { Stdio::null() };
        let mut command = command(order, folder.path());
        // A terminal that is lost, or Ctrl-C, is for us alone: we then let it write what it has.
        command.process_group(0);
        end_with_us(&mut command);
        let call_us =
            (order.watched == Watched::AllCpus && order.events.contains(&EMPTY_CALL)).then(cost::empty_call_us);
        let perf = command.stdin(Stdio::null()).stdout(stdout).stderr(told).spawn();
        let perf = perf.map_err(Error::of_perf)?;
        let (is_stream, is_left) = (order.file.is_none(), false);
        Ok(Self { perf, control, answers, messages, call_us, event_us: None, is_stream, is_left, folder: Some(folder) })
    }

    /// Waits until it records. A stream must be read meanwhile: it begins with more than a pipe holds.
    ///
    /// # Errors
    /// If it does not begin; the message says what it said.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        self.nudge()?;
        let started = Instant::now();
        while !self.has_answered(Duration::from_millis(20))? {
            if self.is_over() || started.elapsed() > START {
                return Err(self.failure());
            }
        }
        // Gone at once: a signal that ends us later leaves nothing behind.
        self.folder = None;
        let mut answer = [0; 16];
        self.answers.read(&mut answer).map_err(Error::kernel("reading perf's answer"))?;
        self.event_us = self.call_us.map(|before_us| cost::event_us(before_us, cost::empty_call_us()));
        Ok(())
    }

    /// What recording adds to a program for an event, from the cheapest kind to the dearest, in microseconds of CPU
    /// time: measured on this program's own events when the recording began. A prior if it records no events of ours.
    #[must_use]
    pub fn event_us(&self) -> [f64; 2] {
        self.event_us.unwrap_or(EVENT_US)
    }

    fn has_answered(&self, within: Duration) -> Result<bool> {
        let moment = Timespec { tv_sec: 0, tv_nsec: within.subsec_nanos().into() };
        let mut wanted = [PollFd::new(&self.answers, PollFlags::IN)];
        match poll(&mut wanted, Some(&moment)) {
            // A signal, which our caller looks at.
            Err(Errno::INTR) => Ok(false),
            answered => Ok(answered.map_err(Error::kernel("poll"))? != 0),
        }
    }

    /// The stream, in the piped form of `perf.data`; once, and only if no file was asked for.
    pub fn stream(&mut self) -> Option<ChildStdout> {
        self.perf.stdout.take()
    }

    /// Makes it hand out what it has so far.
    ///
    /// # Errors
    /// If it is gone.
    pub fn nudge(&mut self) -> Result<()> {
        // Its answers to the nudges before: a pipe that nobody reads would be full after some hours, and it would wait.
        if self.has_answered(Duration::ZERO)? {
            self.answers.read(&mut [0; 4096]).map_err(Error::kernel("reading perf's answer"))?;
        }
        self.control.write_all(b"ping\n").map_err(Error::kernel("writing to perf"))
    }

    /// Whether it ended.
    pub fn is_over(&mut self) -> bool {
        !matches!(self.perf.try_wait(), Ok(None))
    }

    /// CPU time that it has used itself, in seconds; none if it is gone.
    #[must_use]
    pub fn cpu_seconds(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.perf.id())).ok()?;
        let ticks = process_ticks(Of::Process, &stat)?;
        Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Asks it to write what it has and end. A stream must be read to its end meanwhile.
    pub fn stop(&self) {
        // One that ended already is as it should be.
        let _ = kill_process(Pid::from_child(&self.perf), Signal::INT);
    }

    /// Waits until all that it recorded is written. A perf that writes a file then still closes its tracepoints, each
    /// of which waits for every CPU: two seconds in all, for which nobody has to wait.
    ///
    /// # Errors
    /// If it could not write what it recorded, as on a full disk, or cannot be waited for.
    pub fn wait(mut self) -> Result<()> {
        while !self.is_over() && (self.is_stream || !is_written(&self.said())) {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Its exit status is that of a signal or of the command: what went wrong stands in its messages alone.
        let said = self.said();
        self.is_left = true;
        match unwritten(&said) {
            Some(line) => Err(Error::PerfFailed { said: line.to_owned() }),
            None => Ok(()),
        }
    }

    /// Its messages.
    fn said(&self) -> String {
        let length = self.messages.metadata().map_or(0, |data| data.len());
        let mut said = vec![0; length as usize];
        // At a place, as perf writes where this file has been read to.
        let read = self.messages.read_exact_at(&mut said, 0);
        read.map_or_else(|_| String::new(), |()| String::from_utf8_lossy(&said).into_owned())
    }

    fn failure(&self) -> Error {
        let said = self.said();
        let said = complaint(&said).unwrap_or("did not begin, and did not say why");
        Error::PerfFailed { said: format!("{said}; see tlbscope doctor") }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.is_left && !self.is_over() {
            self.stop();
            let _ = self.perf.wait();
        }
    }
}

/// The line that says what is wrong: the first about an error, or the last one. A heading is none, nor is what its
/// reader of formats warns of: how a field would be printed.
fn complaint(said: &str) -> Option<&str> {
    let is_said = |line: &&str| !line.is_empty() && *line != "Error:";
    let is_of_formats =
        |line: &str| line.starts_with("libtraceevent:") || line.starts_with('[') && line.ends_with(" not defined");
    let mut lines = said.lines().map(str::trim).filter(is_said).filter(|line| !is_of_formats(line));
    lines.clone().find(|line| line.to_lowercase().contains("error")).or_else(|| lines.next_back())
}

/// Whether it says that the recording is written.
fn is_written(said: &str) -> bool {
    said.lines().any(|line| line.trim_start().starts_with("[ perf record: Captured and wrote"))
}

/// The line that says that the recording could not be written.
fn unwritten(said: &str) -> Option<&str> {
    said.lines().map(str::trim).find(|line| line.starts_with("failed to write perf data"))
}

/// A named pipe that both ends may open without waiting for each other.
fn pipe(path: &Path) -> Result<File> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(Error::kernel("making a pipe"))?;
    OpenOptions::new().read(true).write(true).open(path).map_err(Error::kernel("opening a pipe"))
}

fn command(order: &Order<'_>, folder: &Path) -> Command {
    let mut command = Command::new("perf");
    let control = format!("fifo:{},{}", folder.join("control").display(), folder.join("answers").display());
    // With what is mapped where, data too: whose memory an address is, no system call tells of what is there already.
    command.args([
        "record",
        "--data",
        // Tracepoints have their CPU always, samples of one process only so.
        "--sample-cpu",
        "--clockid",
        "mono",
        "--no-buildid",
        "--no-buildid-cache",
        "--mmap-pages",
        BUFFER_PAGES,
    ]);
    command.args(["--control", &control]);
    if order.stacks == Stacks::Recorded && order.events.contains(&rights::FLUSH) {
        // A switch says by itself why it flushes. Its stack would be the dearest part of recording what switches often.
        let with_stack = format!("{}/call-graph=fp/", rights::FLUSH);
        command.args(["--event", SAMPLES, "--event", &with_stack, "--filter", "reason != 0"]);
        command.args(["--event", rights::FLUSH, "--filter", "reason == 0"]);
    }
    if order.stacks == Stacks::Absent && order.events.contains(&rights::FLUSH) {
        command.args(["--event", rights::FLUSH, "--filter", "reason != 0"]);
    }
    let others = events(order);
    if !others.is_empty() {
        command.args(["--event", &others]);
    }
    match order.watched {
        Watched::AllCpus => command.arg("--all-cpus"),
        Watched::Process(pid) => command.args(["--pid", &pid.to_string()]),
    };
    command.arg("--output").arg(order.file.unwrap_or(Path::new("-")));
    command
}

/// The events for the command line, without flushes. Tracepoints are not sampled: each one counts.
fn events(order: &Order<'_>) -> String {
    let is_listed = |event: &&&str| **event != rights::FLUSH;
    order.events.iter().filter(is_listed).copied().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn stacks_are_asked_for_flushes_alone() {
        let mut order = Order {
            events: vec!["tlb:tlb_flush", "sched:sched_switch"],
            watched: Watched::Process(7),
            stacks: Stacks::Recorded,
            file: None,
        };
        assert_eq!(events(&order), "sched:sched_switch");
        let words = |order: &Order<'_>| -> Vec<_> {
            command(order, Path::new("folder")).get_args().map(|word| word.to_string_lossy().into_owned()).collect()
        };
        let stacked = words(&order).join(" ");
        assert!(stacked.contains("--event tlb:tlb_flush/call-graph=fp/ --filter reason != 0 --event tlb:tlb_flush "));
        order.stacks = Stacks::Absent;
        let words = words(&order);
        assert!(words.ends_with(&["--pid", "7", "--output", "-"].map(String::from)), "{words:?}");
        assert!(!words.iter().any(|word| word.contains("call-graph")), "{words:?}");
    }

    #[test]
    fn a_stream_holds_what_was_nudged_out_and_ends_when_stopped() {
        let available = match available(&["tlb:tlb_flush"]) {
            Ok(available) => available,
            Err(error) => return println!("skipped: {error}"),
        };
        let order = Order { events: available.events, watched: Watched::AllCpus, stacks: Stacks::Recorded, file: None };
        let mut recorder = Recorder::start(&order).unwrap();
        let mut stream = recorder.stream().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).map(|_| bytes)
        });
        match recorder.wait_until_ready() {
            Err(error) if error.to_string().contains("ermi") => return println!("skipped, no permission: {error}"),
            ready => ready.unwrap(),
        }
        assert!(recorder.cpu_seconds().is_some() && recorder.folder.is_none());
        recorder.nudge().unwrap();
        recorder.stop();
        recorder.wait().unwrap();
        assert!(reader.join().unwrap().unwrap().starts_with(b"PERFILE2"));
    }

    #[test]
    fn of_all_that_perf_says_the_error_counts() {
        let said = "Lowering default frequency rate\nError:\tNo permission\n\n Usage: perf record\n";
        assert_eq!(complaint(said), Some("Error:\tNo permission"));
        assert_eq!(complaint("one\n two \n"), Some("two"));
        assert_eq!(complaint("\n"), None);
        let formats = "libtraceevent: No such file\n  [ipi:ipi_send_cpumask] function __get_cpumask not defined\n";
        assert_eq!(complaint(formats), None);
        assert_eq!(complaint(&format!("{formats}Error:\nFailed to mmap\n")), Some("Failed to mmap"));
        assert!(is_written(
            "[ perf record: Woken up 1 times to write data ]\n[ perf record: Captured and wrote 1 MB a ]\n"
        ));
        assert!(!is_written("[ perf record: Woken up 1 times to write data ]\n"));
        let full = "Warning: a\nfailed to write perf data, error: No space left on device\n";
        assert_eq!(unwritten(full), Some("failed to write perf data, error: No space left on device"));
        assert_eq!(unwritten(said), None);
    }

    #[test]
    fn what_perf_refuses_is_told_in_its_words() {
        if let Err(error) = available(&["tlb:tlb_flush"]) {
            return println!("skipped: {error}");
        }
        let order = Order {
            events: vec!["tlb:no_such_event"],
            watched: Watched::AllCpus,
            stacks: Stacks::Absent,
            file: Some(Path::new("/dev/null")),
        };
        let message = Recorder::start(&order).unwrap().wait_until_ready().unwrap_err().to_string();
        assert_eq!(message, "perf record: event syntax error: 'tlb:no_such_event'; see tlbscope doctor");
    }
}
