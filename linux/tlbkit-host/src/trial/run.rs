//! One run of a command, and what it used.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::error::{Error, Result};
use crate::sys::end_with_us;

use super::running::{Count, Counting, Running};

/// What one run came to.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    pub(super) count: Count,
    /// The last line that it wrote to standard error.
    pub(super) said: String,
    /// Somebody wanted it to end.
    pub(super) is_stopped: bool,
}

/// How often to look whether somebody wants it to end; a signal is seen at once.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long a command may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(3);
/// A line of a message that goes no further.
const LINE_BYTES: usize = 200;
/// How much of the end of its messages is looked at.
const MESSAGE_BYTES: u64 = 1 << 20;

/// Runs it, with nothing to read, in its own process group, and with what it writes thrown away.
pub(super) fn run(mut command: Command, is_stop_wanted: &dyn Fn() -> bool) -> Result<Run> {
    let mut messages = tempfile::tempfile().map_err(Error::kernel("making a file for messages"))?;
    let for_child = messages.try_clone().map_err(Error::kernel("making a file for messages"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(for_child).process_group(0);
    let (count, is_stopped) = counted(command, Counting::Flushes, is_stop_wanted)?;
    Ok(Run { count, said: last_line(&mut messages), is_stopped })
}

impl Count {
    /// Runs `command`, which keeps its input and its output, and counts it.
    ///
    /// # Errors
    /// If it cannot be run, or waited for.
    pub fn of(command: Command, counting: Counting, is_stop_wanted: &dyn Fn() -> bool) -> Result<Self> {
        Ok(counted(command, counting, is_stop_wanted)?.0)
    }
}

/// Runs it to its end, and tells whether it was made to end.
fn counted(mut command: Command, counting: Counting, is_stop_wanted: &dyn Fn() -> bool) -> Result<(Count, bool)> {
    end_with_us(&mut command);
    let running = Running::start(command, counting)?;
    let is_stopped = wait(running.pid(), is_stop_wanted)?;
    Ok((running.wait()?, is_stopped))
}

/// Waits until it has ended; true if it was made to.
fn wait(child: Pid, is_stop_wanted: &dyn Fn() -> bool) -> Result<bool> {
    let handle = pidfd_open(child, PidfdFlags::empty()).map_err(Error::kernel("pidfd_open"))?;
    let mut asked: Option<Instant> = None;
    loop {
        let mut wanted = [PollFd::new(&handle, PollFlags::IN)];
        match poll(&mut wanted, Some(&LOOK_EVERY)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => {
                // What it started may not have listened. Until the leader is waited for the group is nobody else's.
                if asked.is_some() {
                    let _ = kill_process_group(child, Signal::KILL);
                }
                return Ok(asked.is_some());
            }
            Err(error) => return Err(Error::kernel("poll")(error)),
        }
        match asked {
            None if is_stop_wanted() => {
                asked = Some(Instant::now());
                end(child, Signal::TERM);
            }
            Some(asked) if asked.elapsed() > PATIENCE => {
                end(child, Signal::KILL);
            }
            _ => {}
        }
    }
}

/// Ends it with its group, or it alone if it has no group. It may be gone already, which is as well.
fn end(child: Pid, signal: Signal) {
    let _ = kill_process_group(child, signal).or_else(|_| kill_process(child, signal));
}

fn last_line(messages: &mut fs::File) -> String {
    let mut bytes = Vec::new();
    // A message that cannot be read is none.
    let end = messages.seek(SeekFrom::End(0)).unwrap_or(0);
    let from = SeekFrom::Start(end.saturating_sub(MESSAGE_BYTES));
    let _ = messages.seek(from).and_then(|_| messages.take(MESSAGE_BYTES).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(LINE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::super::running::Quantity;
    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    fn value(run: &Run, quantity: Quantity) -> Option<f64> {
        run.count.get(quantity)
    }

    #[test]
    fn what_a_command_and_its_children_used_is_told() {
        let run =
            run(shell("sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; echo oh >&2; exit 7"), &|| false);
        let run = run.unwrap();
        assert_eq!((run.count.status.code(), run.said.as_str(), run.is_stopped), (Some(7), "oh", false));
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
        let run = run(shell("sleep 3600 & sleep 3600"), &|| true).unwrap();
        assert!(run.is_stopped && run.count.status.signal().is_some(), "{run:?}");
    }

    #[test]
    fn what_it_started_is_ended_even_if_it_does_not_listen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let line = format!("(trap '' TERM; sh -c 'echo $$ > {}; exec sleep 3600') & sleep 3600", file.display());
        let pid = || fs::read_to_string(&file).ok()?.trim().parse::<i32>().ok();
        assert!(run(shell(&line), &|| pid().is_some()).unwrap().is_stopped);
        let state = || fs::read_to_string(format!("/proc/{}/stat", pid().unwrap()));
        // The process that takes in orphans may let it wait.
        let is_gone = || state().map_or(true, |stat| stat.contains(") Z "));
        let started = Instant::now();
        while !is_gone() {
            assert!(started.elapsed() < Duration::from_secs(300), "it runs on: {:?}", state());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn the_last_line_is_that_of_a_long_message_too() {
        let line = "head -c 1500000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the end >&2; exit 1";
        assert_eq!(run(shell(line), &|| false).unwrap().said, "the end");
    }

    #[test]
    fn a_count_leaves_the_command_its_output_and_status() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = shell("echo said; exit 5");
        command.stdout(fs::File::create(folder.path().join("said")).unwrap());
        let count = Count::of(command, Counting::Flushes, &|| false).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("said")).unwrap(), "said\n");
        assert_eq!(count.status.code(), Some(5));
        assert!(count.get(Quantity::Faults) > Some(50.0), "{count:?}");
        let stopped = Count::of(shell("exec sleep 3600"), Counting::Flushes, &|| true).unwrap();
        assert!(stopped.status.signal().is_some(), "{stopped:?}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(Command::new("no-such-program"), &|| false).unwrap_err().to_string();
        assert_eq!(error, "no-such-program: cannot be run");
    }
}
