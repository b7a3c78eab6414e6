//! Runs the handshakes of a crate under loom on a copy of it, within a limit of time.

use super::change::Change;
use crate::setup;
use crate::workshop::{OBSERVED, Sets, TESTKIT, Workshop};
use anyhow::{Context, Result, bail};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// A crate whose orderings its own handshakes must notice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    /// Its name, and that of its folder in `lib`.
    pub(super) name: &'static str,
    /// What the handshakes are built with.
    features: &'static [&'static str],
    /// The builds that its orderings are looked for in: the last meets every line.
    sets: &'static [Sets],
}

/// All of them.
pub(super) const SUBJECTS: [Subject; 3] = [
    // With narrow sets the handshakes meet every line, and only so some.
    Subject { name: "tlbkit", features: &["--features", "history"], sets: &Sets::ALL },
    Subject { name: "tlbkit-pmap", features: &[], sets: &[Sets::Wide] },
    Subject { name: "tlbkit-c", features: &[], sets: &[Sets::Wide] },
];

impl Subject {
    /// Its sources, below the workspace's root.
    pub(super) fn sources(&self) -> String {
        format!("lib/{}/src", self.name)
    }
}

/// How far the handshakes are explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// Each within its own bound on preemptions.
    Whole,
    /// So in the build that meets every line, and within one preemption in the others.
    Quick,
}

/// The unchanged source takes a minute or two of a CPU, and several where other things are to be done; what takes this
/// long does not end.
const LIMIT: Duration = Duration::from_secs(1800);
const PAUSE: Duration = Duration::from_millis(20);

/// What the handshakes say of a source.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// These tests fail.
    Killed(Vec<String>),
    /// None does.
    Survived,
    /// They do not end.
    TimedOut,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed(by) => match by.as_slice() {
                [] => f.pad("no test in particular"),
                [one] => f.pad(one),
                [one, more @ ..] => f.pad(&format!("{one} and {} more", more.len())),
            },
            Self::Survived => f.pad("NOT NOTICED"),
            Self::TimedOut => f.pad("NOT NOTICED: does not end"),
        }
    }
}

/// A copy of the crates.
pub(super) struct CratesCopy {
    workshop: Workshop,
}

impl CratesCopy {
    /// Copies them from the workspace at `root`.
    pub(super) fn new(root: &Path) -> Result<Self> {
        const CRATES: [&str; 7] =
            ["lib/tlbkit", "lib/tlbkit-arch", "lib/tlbkit-pmap", "lib/tlbkit-x86", "lib/tlbkit-c", TESTKIT, OBSERVED];
        Ok(Self { workshop: Workshop::new(root, &setup::target_dir(root).join("fences"), &CRATES)? })
    }

    /// The verdict on the copy of `subject` with `change` made, in the build that meets every line; the copy is then as
    /// before.
    pub(super) fn verdict_of(&self, subject: &Subject, change: &Change) -> Result<Verdict> {
        let file = self.workshop.root.join(subject.sources()).join(&change.file);
        let text = fs::read_to_string(&file)?;
        fs::write(&file, change.apply(&text))?;
        let verdict = self.verdict_with(subject, *subject.sets.last().context("no build is named")?, Depth::Whole);
        fs::write(&file, text)?;
        verdict
    }

    /// The verdict on the copy of `subject` as it is, in all its builds.
    pub(super) fn verdict(&self, subject: &Subject, depth: Depth) -> Result<Verdict> {
        for &sets in subject.sets {
            let depth = if subject.sets.last() == Some(&sets) { Depth::Whole } else { depth };
            match self.verdict_with(subject, sets, depth)? {
                Verdict::Survived => {}
                other => return Ok(other),
            }
        }
        Ok(Verdict::Survived)
    }

    fn verdict_with(&self, subject: &Subject, sets: Sets, depth: Depth) -> Result<Verdict> {
        let (program, log) = (self.build(subject, sets)?, self.workshop.target.join("handshakes.log"));
        let mut command = Command::new(program);
        command.env("RUST_BACKTRACE", "0").stdout(File::create(&log)?);
        if depth == Depth::Quick {
            // loom's own bound, which the handshakes put before theirs.
            command.env("LOOM_MAX_PREEMPTIONS", "1");
        }
        let mut child = command.spawn()?;
        let end = wait(&mut child, || failed(&log))?;
        let by = failed(&log)?;
        Ok(match end {
            _ if !by.is_empty() => Verdict::Killed(by),
            Some(false) => Verdict::Killed(by),
            Some(true) => Verdict::Survived,
            None => Verdict::TimedOut,
        })
    }

    /// Builds the handshakes; the path of the program.
    fn build(&self, subject: &Subject, sets: Sets) -> Result<PathBuf> {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["test", "--quiet", "--package", subject.name, "--test", "handshakes"])
            .args(["--no-run", "--message-format=json"])
            .args(subject.features)
            .current_dir(&self.workshop.root)
            .env("CARGO_TARGET_DIR", &self.workshop.target)
            .env("RUSTFLAGS", "--cfg loom");
        sets.give(&mut cargo)?;
        program(&cargo.output().context("running cargo")?)
    }
}

/// The program that cargo says it has built.
fn program(output: &Output) -> Result<PathBuf> {
    if !output.status.success() {
        bail!("the copy does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().context("cargo names no program")
}

/// Waits until the child ends, some test has failed, or the limit is reached: whether the child succeeded, or `None`
/// if it had to be stopped.
fn wait(child: &mut Child, failed: impl Fn() -> Result<Vec<String>>) -> Result<Option<bool>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT && failed()?.is_empty() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        std::thread::sleep(PAUSE);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Names of the tests that have failed so far.
fn failed(log: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    let name = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    Ok(text.lines().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_read_from_the_log() -> Result<()> {
        let log = std::env::temp_dir().join(format!("tlbkit-fences-{}.log", std::process::id()));
        fs::write(
            &log,
            "running 2 tests\ntest lazy::a ... ok\ntest join::b ... FAILED\n\ntest result: FAILED. 1 passed\n",
        )?;
        let names = failed(&log);
        fs::remove_file(&log)?;
        assert_eq!(names?, ["join::b"]);
        Ok(())
    }

    #[test]
    fn a_program_that_ends_is_judged_by_its_status_and_one_that_failed_is_stopped() -> Result<()> {
        let none = || Ok(Vec::new());
        assert_eq!(wait(&mut Command::new("true").spawn()?, none)?, Some(true));
        assert_eq!(wait(&mut Command::new("false").spawn()?, none)?, Some(false));
        let one = || Ok(vec!["join::b".to_owned()]);
        assert_eq!(wait(&mut Command::new("sleep").arg("600").spawn()?, one)?, None);
        Ok(())
    }
}
