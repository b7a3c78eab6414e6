//! Recordings of this machine, made by `perf` while the test runs.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use tlbkit_trace::EVENTS;

/// Forks, execs, maps and unmaps: work for the TLB on any machine.
const LOAD: &str = "i=0; while [ $i -lt 40 ]; do /bin/true; ls / >/dev/null; i=$((i+1)); done";

pub(crate) struct Recording {
    pub(crate) file: PathBuf,
    _dir: TempDir,
}

/// Those tracepoints that this kernel has, as one argument for `perf record -e`.
fn events() -> Result<String, String> {
    let listed = run(Command::new("perf").args(["list", "tracepoint"]))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let has = |event: &&&str| listed.split_whitespace().any(|word| word == **event);
    let events: Vec<_> = EVENTS.iter().filter(has).copied().collect();
    if events.contains(&"tlb:tlb_flush") { Ok(events.join(",")) } else { Err("no tracepoint tlb:tlb_flush".into()) }
}

/// Records the whole machine under a small load; why not, where it cannot.
pub(crate) fn record(options: &[&str]) -> Result<Recording, String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = dir.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-a", "-k", "mono", "-m", "4096", "-N", "-B", "-e", &events()?]);
    perf.args(options).arg("-o").arg(&file).args(["--", "sh", "-c", LOAD]);
    run(&mut perf)?;
    Ok(Recording { file, _dir: dir })
}

/// The same through a pipe.
pub(crate) fn record_pipe() -> Result<Vec<u8>, String> {
    let mut perf = Command::new("perf");
    perf.args(["record", "-a", "-k", "mono", "-N", "-B", "-e", &events()?, "-o", "-", "--", "sh", "-c", LOAD]);
    run(&mut perf).map(|output| output.stdout)
}

/// What `perf script` itself makes of a recording.
pub(crate) fn script(recording: &Recording, fields: &str) -> Vec<u8> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--ns", "-F", fields, "-i"]).arg(&recording.file);
    run(&mut perf).expect("perf script reads what perf record wrote").stdout
}

fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("perf does not run: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("perf failed").to_owned())
}

/// Runs a test on a recording, or says why it is skipped.
pub(crate) fn with<T>(recording: Result<T, String>, test: impl FnOnce(T)) {
    match recording {
        Ok(recording) => test(recording),
        Err(reason) => println!("skipped: {reason}"),
    }
}
