//! `cargo xtask fences`: each fence and each ordering of the protocol, the page tables and the C interface is taken
//! away or weakened, one at a time, in a copy; that crate's handshakes under loom must notice every one. `cargo xtask
//! loom` explores them on the sources as they are.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::setup::{self, output};
use crate::workshop::{OBSERVED, Sets, TESTKIT, Workshop};

/// A crate whose orderings its own handshakes must notice.
#[derive(Clone, Copy, Debug)]
struct Subject {
    /// Its name, and that of its folder in `lib`.
    name: &'static str,
    /// What the handshakes are built with.
    features: &'static [&'static str],
    /// The builds that its orderings are looked for in: the last meets every line.
    sets: &'static [Sets],
}

const SUBJECTS: [Subject; 3] = [
    Subject { name: "tlbkit", features: &["--features", "history"], sets: &Sets::ALL },
    Subject { name: "tlbkit-pmap", features: &[], sets: &[Sets::Wide] },
    Subject { name: "tlbkit-c", features: &[], sets: &[Sets::Wide] },
];

/// How far the handshakes are explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Depth {
    /// Each in all builds, within its own bound on preemptions.
    Whole,
    /// In the build that meets every line, within one preemption.
    Quick,
}

/// `cargo xtask loom`; false if a handshake fails.
pub(crate) fn loom(root: &Path, args: &[String]) -> Result<bool> {
    let depth = match args {
        [] => Depth::Whole,
        [flag] if flag == "--quick" => Depth::Quick,
        _ => bail!("`loom` takes `--quick` alone, got `{}`", args.join(" ")),
    };
    let copy = CratesCopy::new(root)?;
    for subject in &SUBJECTS {
        let verdict = copy.verdict(subject, depth)?;
        if verdict != Verdict::Survived {
            println!("{}: {verdict}", subject.name);
            return Ok(false);
        }
    }
    Ok(true)
}

/// `cargo xtask fences [CRATE...] [FILE...]`; false if a change goes unnoticed.
///
/// # Errors
/// If the arguments are wrong, the unchanged source fails, or a changed one does not build.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    let wanted = wanted(root, args)?;
    let copy = CratesCopy::new(root)?;
    let (mut killed, mut count) = (0, 0);
    for (subject, changes) in &wanted {
        let verdict = copy.verdict(subject, Depth::Whole)?;
        ensure!(verdict == Verdict::Survived, "the unchanged source of {} fails already: {verdict}", subject.name);
        for change in changes {
            let start = Instant::now();
            let verdict = copy.verdict_of(subject, change).with_context(|| change.to_string())?;
            (killed, count) = (killed + usize::from(matches!(verdict, Verdict::Killed(_))), count + 1);
            let (name, seconds) = (subject.name, start.elapsed().as_secs_f64());
            println!("{name} {change:<60} {verdict:<60} {seconds:>6.1} s");
        }
    }
    println!("{killed} of {count} changes noticed");
    Ok(killed == count)
}

/// The changes that the arguments ask for, by crate: all, or those in crates and files that are named.
fn wanted(root: &Path, args: &[String]) -> Result<Vec<(Subject, Vec<Change>)>> {
    let mut subjects: Vec<Subject> =
        SUBJECTS.into_iter().filter(|subject| args.iter().any(|arg| arg == subject.name)).collect();
    if subjects.is_empty() {
        subjects = SUBJECTS.to_vec();
    }
    let is_subject = |arg: &str| SUBJECTS.iter().any(|subject| subject.name == arg);
    let files: Vec<&String> = args.iter().filter(|arg| !is_subject(arg)).collect();
    let mut all = Vec::new();
    for subject in subjects {
        let folder = root.join(subject.sources());
        let mut changes = Vec::new();
        changes_below(&folder, &folder, &mut changes)?;
        changes.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        all.push((subject, changes));
    }
    let has = |file: &str| all.iter().flat_map(|(_, changes)| changes).any(|change| change.file == file);
    if let Some(file) = files.iter().find(|file| !has(file)) {
        let names = SUBJECTS.map(|subject| subject.name).join(", ");
        bail!("`fences` takes names of {names}, and files with an ordering, as flush/shootdown.rs; got `{file}`");
    }
    all.iter_mut().for_each(|(_, changes)| changes.retain(|change| files.is_empty() || files.contains(&&change.file)));
    Ok(all)
}

/// Every change to every file below `folder`, named from `top` on.
fn changes_below(top: &Path, folder: &Path, changes: &mut Vec<Change>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.strip_prefix(top)?.display().to_string();
        if path.is_dir() {
            changes_below(top, &path, changes)?;
        // `sync.rs` is the wrapper of the atomics and uses none for itself.
        } else if name.ends_with(".rs") && name != "sync.rs" {
            changes.extend(self::changes(&name, &fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// One place, made one step weaker.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Change {
    file: String,
    /// From 1.
    line: usize,
    function: String,
    columns: Range<usize>,
    is_fence: bool,
    from: &'static str,
    /// `None` takes the fence away.
    to: Option<&'static str>,
}

/// Orderings that can be weaker, and the next weaker ones.
const WEAKER: [(&str, &[&str]); 4] = [
    ("SeqCst", &["AcqRel"]),
    ("AcqRel", &["Acquire", "Release"]),
    ("Acquire", &["Relaxed"]),
    ("Release", &["Relaxed"]),
];
const FENCE: &str = "fence(";
const PATH: &str = "Ordering::";

/// Every change to `text`, the file `name`, outside its comments and the tests at its end.
fn changes(name: &str, text: &str) -> Vec<Change> {
    let (mut function, mut found) = (String::new(), Vec::new());
    for (at, line) in text.lines().enumerate().take_while(|(_, line)| *line != "#[cfg(test)]") {
        let code = line.split("//").next().unwrap_or_default();
        if let Some((_, rest)) = code.split_once("fn ") {
            function = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        }
        for (column, _) in code.match_indices(PATH) {
            let ordering: String = code[column + PATH.len()..].chars().take_while(|c| c.is_alphanumeric()).collect();
            let Some(&(from, weaker)) = WEAKER.iter().find(|(from, _)| *from == ordering) else { continue };
            let end = column + PATH.len() + from.len();
            let fence = code[..column].ends_with(FENCE).then(|| column - FENCE.len());
            let mut change = |to, columns| {
                let (file, function, is_fence) = (name.to_owned(), function.clone(), fence.is_some());
                found.push(Change { file, line: at + 1, function, columns, is_fence, from, to });
            };
            for &to in weaker.iter().filter(|to| fence.is_none() || **to != "Relaxed") {
                change(Some(to), column..end);
            }
            if let Some(start) = fence {
                // The parenthesis goes with the fence.
                change(None, start..end + 1);
            }
        }
    }
    found
}

impl Change {
    fn what(&self) -> String {
        let kind = if self.is_fence { "fence " } else { "" };
        format!("{kind}{} -> {}", self.from, self.to.unwrap_or("none"))
    }

    /// `text`, the file, with the change made.
    fn apply(&self, text: &str) -> String {
        let line = |(at, line): (usize, &str)| {
            if at + 1 != self.line {
                return format!("{line}\n");
            }
            let replacement = self.to.map_or("()".to_owned(), |to| format!("{PATH}{to}"));
            format!("{}{replacement}{}\n", &line[..self.columns.start], &line[self.columns.end..])
        };
        text.lines().enumerate().map(line).collect()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{} {} {}", self.file, self.line, self.function, self.what()))
    }
}

/// What the handshakes say of a source.
#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    /// These tests fail.
    Killed(Vec<String>),
    Survived,
    TimedOut,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed(by) => match by.as_slice() {
                [] => f.pad("killed by no test in particular"),
                [one] => f.pad(&format!("killed by {one}")),
                [one, more @ ..] => f.pad(&format!("killed by {one} and {} more", more.len())),
            },
            Self::Survived => f.pad("NOT NOTICED"),
            Self::TimedOut => f.pad("NOT NOTICED: does not end"),
        }
    }
}

/// The unchanged source takes a minute or two of a CPU, and several where other things are to be done; what takes this
/// long does not end.
const LIMIT: Duration = Duration::from_secs(1800);

impl Subject {
    /// Below the workspace's root.
    fn sources(&self) -> String {
        format!("lib/{}/src", self.name)
    }
}

/// A copy of the crates, in which they are changed and their handshakes are run.
struct CratesCopy(Workshop);

impl CratesCopy {
    fn new(root: &Path) -> Result<Self> {
        const CRATES: [&str; 7] =
            ["lib/tlbkit", "lib/tlbkit-arch", "lib/tlbkit-pmap", "lib/tlbkit-x86", "lib/tlbkit-c", TESTKIT, OBSERVED];
        Ok(Self(Workshop::new(root, &setup::target_dir(root).join("fences"), &CRATES)?))
    }

    /// The verdict on `subject` with `change` made, in the build that meets every line; the copy is then as before.
    fn verdict_of(&self, subject: &Subject, change: &Change) -> Result<Verdict> {
        let file = self.0.root.join(subject.sources()).join(&change.file);
        let text = fs::read_to_string(&file)?;
        fs::write(&file, change.apply(&text))?;
        let verdict = self.verdict_with(subject, *subject.sets.last().context("no build is named")?, Depth::Whole);
        fs::write(&file, text)?;
        verdict
    }

    /// The verdict on `subject` as it is.
    fn verdict(&self, subject: &Subject, depth: Depth) -> Result<Verdict> {
        let first = if depth == Depth::Quick { subject.sets.len() - 1 } else { 0 };
        for &sets in &subject.sets[first..] {
            let verdict = self.verdict_with(subject, sets, depth)?;
            if verdict != Verdict::Survived {
                return Ok(verdict);
            }
        }
        Ok(Verdict::Survived)
    }

    fn verdict_with(&self, subject: &Subject, sets: Sets, depth: Depth) -> Result<Verdict> {
        let log = self.0.target.join("handshakes.log");
        let mut command = Command::new(self.build(subject, sets)?);
        command.env("RUST_BACKTRACE", "0").stdout(File::create(&log)?);
        if depth == Depth::Quick {
            // loom's own bound, which the handshakes put before theirs.
            command.env("LOOM_MAX_PREEMPTIONS", "1");
        }
        let end = wait(&mut command.spawn()?, || failed(&log))?;
        let by = failed(&log)?;
        Ok(match end {
            Some(true) if by.is_empty() => Verdict::Survived,
            None if by.is_empty() => Verdict::TimedOut,
            _ => Verdict::Killed(by),
        })
    }

    /// Builds the handshakes; the path of the program.
    fn build(&self, subject: &Subject, sets: Sets) -> Result<PathBuf> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--quiet", "--package", subject.name, "--test", "handshakes"]);
        cargo.args(["--no-run", "--message-format=json"]).args(subject.features).current_dir(&self.0.root);
        cargo.env("CARGO_TARGET_DIR", &self.0.target).env("RUSTFLAGS", "--cfg loom");
        sets.give(&mut cargo)?;
        let text = output(&mut cargo).context("the copy does not build")?;
        let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut programs = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
        programs.next_back().context("cargo names no program")
    }
}

/// Waits until the child ends, some test has failed, or the limit is reached: whether the child succeeded, or `None`
/// if it had to be stopped.
fn wait(child: &mut Child, failed: impl Fn() -> Result<Vec<String>>) -> Result<Option<bool>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT && failed()?.is_empty() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        std::thread::sleep(Duration::from_millis(20));
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

    const TEXT: &str = "\
fn one() {
    // fence(Ordering::SeqCst) in a comment
    fence(Ordering::SeqCst);
    word.load(Ordering::Relaxed);
}
pub(crate) fn two(order: Ordering) {
    word.swap(0, Ordering::AcqRel) + other.load(Ordering::Acquire);
}
#[cfg(test)]
mod tests {
    fn three() {
        word.load(Ordering::Acquire);
    }
}
";

    #[test]
    fn each_ordering_becomes_one_step_weaker_and_a_fence_goes() {
        let found = changes("a.rs", TEXT);
        let expected = [
            "a.rs:3 one fence SeqCst -> AcqRel",
            "a.rs:3 one fence SeqCst -> none",
            "a.rs:7 two AcqRel -> Acquire",
            "a.rs:7 two AcqRel -> Release",
            "a.rs:7 two Acquire -> Relaxed",
        ];
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        let changed: Vec<String> = found.iter().map(|change| change.apply(TEXT)).collect();
        assert!(
            changed[0].contains("    fence(Ordering::AcqRel);\n") && changed[0].contains("swap(0, Ordering::AcqRel)")
        );
        assert!(changed[1].contains("    ();\n"), "{}", changed[1]);
        assert!(changed[4].contains("swap(0, Ordering::AcqRel) + other.load(Ordering::Relaxed);"), "{}", changed[4]);
    }

    #[test]
    fn crates_and_files_are_chosen_by_name_and_others_refused() -> Result<()> {
        let root = setup::root()?;
        let args = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
        let of_one = wanted(&root, &args(&["tlbkit", "flush/shootdown.rs"]))?;
        assert!(of_one.len() == 1 && !of_one[0].1.is_empty());
        assert!(of_one[0].1.iter().all(|change| change.file == "flush/shootdown.rs"));
        let all = wanted(&root, &[])?;
        assert!(all.len() == 3 && all.iter().all(|(_, changes)| !changes.is_empty()));
        for wrong in ["--fast", "no-such.rs"] {
            assert!(wanted(&root, &args(&[wrong])).is_err_and(|error| error.to_string().contains(wrong)));
        }
        Ok(())
    }

    #[test]
    fn a_program_is_judged_by_its_end_and_one_whose_test_failed_is_stopped() -> Result<()> {
        let log = std::env::temp_dir().join(format!("tlbkit-fences-{}.log", std::process::id()));
        fs::write(&log, "running 2 tests\ntest lazy::a ... ok\ntest join::b ... FAILED\n\ntest result: FAILED.\n")?;
        let names = failed(&log);
        fs::remove_file(&log)?;
        assert_eq!(names?, ["join::b"]);
        let none = || Ok(Vec::new());
        assert_eq!(wait(&mut Command::new("true").spawn()?, none)?, Some(true));
        assert_eq!(wait(&mut Command::new("false").spawn()?, none)?, Some(false));
        let one = || Ok(vec!["join::b".to_owned()]);
        assert_eq!(wait(&mut Command::new("sleep").arg("600").spawn()?, one)?, None);
        Ok(())
    }
}
