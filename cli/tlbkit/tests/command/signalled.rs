//! A command that a signal ends.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take until it listens, however busy the machine: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether a process has a handler for SIGINT: it listens from then on.
fn is_listening(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).unwrap() >> 1 & 1 == 1
}

/// Ends a command by a signal as soon as it listens, and gives what it wrote to standard output and error.
pub(crate) fn end(program: &str, line: &str, folder: &Path, signal: &str, status: i32) -> [String; 2] {
    let mut command = Command::new(program);
    let command = command.args(line.split(' ')).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let started = Instant::now();
    while !is_listening(running.id()) {
        if started.elapsed() > PATIENCE {
            running.kill().unwrap();
        }
        assert!(running.try_wait().unwrap().is_none(), "{line} ended without a look at signals");
        thread::sleep(Duration::from_millis(2));
    }
    Command::new("kill").args([signal, &running.id().to_string()]).status().unwrap();
    let output = running.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(status), "{line}: {said:?}");
    said
}
