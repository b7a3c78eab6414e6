//! Building the kernel, and one boot of it under QEMU.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::setup::{self, Ready};

/// What the kernel is built for.
pub(super) const TARGET: &str = "x86_64-unknown-none";
const QEMU: &str = "qemu-system-x86_64";

/// How an emulator runs several CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Threads {
    /// On one host thread, in turns that end where a CPU pauses: fast, whatever else the host does.
    InTurns,
    /// Each on a host thread of its own: really at the same time.
    Parallel,
}

/// One boot.
#[derive(Clone, Debug)]
pub(super) struct Boot {
    pub(super) cpus: u32,
    pub(super) threads: Threads,
    /// The kernel's command line, but for the number of CPUs.
    pub(super) words: String,
    pub(super) limit: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Ended {
    /// The kernel's last line; null if it wrote none.
    pub(super) last: Value,
    pub(super) seconds: f64,
}

impl Ended {
    /// True if the kernel says that all held.
    pub(super) fn is_fine(&self) -> bool {
        self.kind() == "result"
    }

    /// `result`, `failure`, `panic`, `usage`, or `nothing`.
    pub(super) fn kind(&self) -> &str {
        self.last["kind"].as_str().unwrap_or("nothing")
    }

    /// What the kernel says of a failure.
    pub(super) fn what(&self) -> &str {
        self.last["what"].as_str().unwrap_or("no line came in time")
    }
}

/// The emulator's program.
pub(super) fn program() -> Ready<PathBuf> {
    setup::program(&[QEMU], "qemu-system-x86")
}

/// Builds the kernel and returns the image.
pub(super) fn build(root: &Path) -> Result<PathBuf> {
    build_at(&root.join("kernel"), &setup::target_dir(root).join("kernel"))
}

/// The same for the kernel in `folder`, built in `target`.
pub(super) fn build_at(folder: &Path, target: &Path) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--quiet"]).current_dir(folder).env("CARGO_TARGET_DIR", target);
    let output = command.output().context("running cargo")?;
    if !output.status.success() {
        bail!("the kernel does not build:\n{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(target.join(TARGET).join("release/tlbkit-kernel"))
}

impl Boot {
    /// A boot with the time limit that every short run gets.
    pub(super) fn new(cpus: u32, threads: Threads, words: impl Into<String>) -> Self {
        Self { cpus, threads, words: words.into(), limit: Duration::from_secs(240) }
    }

    /// Boots `kernel` and waits for its end.
    pub(super) fn run(&self, kernel: &Path) -> Result<Ended> {
        Ok(self.run_telling(kernel)?.0)
    }

    /// The same, with every line that the kernel wrote.
    pub(super) fn run_telling(&self, kernel: &Path) -> Result<(Ended, Vec<Value>)> {
        let log = kernel.with_extension("log");
        let threads = if self.threads == Threads::InTurns { "single" } else { "multi" };
        let mut command = Command::new(QEMU);
        command
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio", "-m", "512", "-cpu", "max"])
            .args(["-accel", &format!("tcg,thread={threads}"), "-smp", &self.cpus.to_string()])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-append", &self.command_line(), "-kernel"])
            .arg(kernel)
            .stdin(Stdio::null())
            .stdout(File::create(&log).with_context(|| format!("writing {}", log.display()))?);
        let begun = Instant::now();
        let status = wait(command.spawn().with_context(|| format!("running {QEMU}"))?, self.limit)?;
        let seconds = begun.elapsed().as_secs_f64();
        let lines = lines(&log)?;
        let ended = Ended { last: lines.last().cloned().unwrap_or(Value::Null), seconds };
        // The kernel's own codes are odd and above.
        if status.and_then(|status| status.code()) == Some(1) {
            bail!("{QEMU} did not start the kernel");
        }
        Ok((ended, lines))
    }

    /// The kernel's whole command line.
    pub(super) fn command_line(&self) -> String {
        format!("cpus={} {}", self.cpus, self.words)
    }
}

/// Waits for the end of `child`, or ends it after `limit`.
pub(super) fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The JSON lines of a log.
pub(super) fn lines(log: &Path) -> Result<Vec<Value>> {
    let text = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let objects = text.lines().filter(|line| line.starts_with('{'));
    Ok(objects.filter_map(|line| serde_json::from_str(line).ok()).collect())
}
