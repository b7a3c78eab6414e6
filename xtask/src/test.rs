//! `cargo xtask test`: runs steps, two at a time where neither disturbs the other, and prints one line for each.
//!
//! A step that fails stops no other, and what it wrote is printed. What cannot be checked on this machine is skipped
//! aloud, with the command that would change that.

use anyhow::{Context, Result, bail, ensure};
use std::collections::VecDeque;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use crate::setup::{self, Need};
use crate::steps::STEPS;

/// One check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    name: &'static str,
    lane: Lane,
    runs: Runs,
    /// Without one of these it is skipped.
    needs: &'static [Need],
    /// A line for `sh` in the root of the repository. `cargo xtask` stands for this program, `$TARGET` for the folder
    /// that cargo builds into.
    command: &'static str,
}

/// What a step disturbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Others that build in cargo's folder, which lets one at a time in.
    Tree,
    /// None: it builds in a separate folder, and measures no time.
    Beside,
    /// All: an emulator that runs CPUs in parallel wants the machine for itself.
    Alone,
}

/// When a step is run that nobody has named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    Always,
    /// Without `--all`, by which a longer step does the same and more.
    Quick,
    /// With `--all`.
    All,
}

pub(crate) const fn step(
    name: &'static str,
    lane: Lane,
    runs: Runs,
    needs: &'static [Need],
    command: &'static str,
) -> Step {
    Step { name, lane, runs, needs, command }
}

/// How a step ended.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Skipped(String),
    /// With all that it wrote.
    Failed(String),
}

/// A step that has run.
#[derive(Debug)]
struct Ended {
    name: &'static str,
    outcome: Outcome,
    seconds: f64,
    /// Of its processes, where the shell told.
    processor_seconds: f64,
}

/// Runs the steps that `args` ask for; false if one failed.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    let steps = chosen(args)?;
    own_path()?;
    let begun = Instant::now();
    let lane = |lane| Mutex::new(steps.iter().copied().filter(|step| step.lane == lane).collect::<VecDeque<_>>());
    let (tree, beside, alone) = (lane(Lane::Tree), lane(Lane::Beside), lane(Lane::Alone));
    let mut ended = thread::scope(|scope| -> Result<Vec<Ended>> {
        let aside = scope.spawn(|| run_each(root, &beside));
        let mut ended = run_each(root, &tree)?;
        // The lane that is empty first helps the other.
        ended.extend(run_each(root, &beside)?);
        ended.extend(aside.join().unwrap_or_else(|_| bail!("running the steps beside the tree's ended by a panic"))?);
        Ok(ended)
    })?;
    ended.extend(run_each(root, &alone)?);
    let count = |is_it: fn(&Outcome) -> bool| ended.iter().filter(|step| is_it(&step.outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    println!(
        "{} passed, {} skipped, {failed} failed in {:.0} s, with {:.0} s of processors",
        count(|outcome| *outcome == Outcome::Passed),
        count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        begun.elapsed().as_secs_f64(),
        ended.iter().map(|step| step.processor_seconds).sum::<f64>(),
    );
    Ok(failed == 0)
}

/// The steps that the arguments ask for: those whose name holds a word, or all that run by themselves.
fn chosen(args: &[String]) -> Result<Vec<Step>> {
    let (mut words, mut is_all, mut part, mut args) = (Vec::new(), false, (1, 1), args.iter());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--all" => is_all = true,
            "--part" => part = part_of(args.next().context("`--part` without K/N")?)?,
            flag if flag.starts_with('-') => bail!("`test` takes --all, --part K/N and names of steps, got `{flag}`"),
            word => words.push(word),
        }
    }
    if let Some(word) = words.iter().find(|word| STEPS.iter().all(|step| !step.name.contains(**word))) {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!("no step `{word}`; there are: {}", names.join(", "));
    }
    let unnamed = |step: &Step| step.runs == Runs::Always || is_all == (step.runs == Runs::All);
    let is_wanted = |step: &&Step| match words.as_slice() {
        [] => unnamed(step),
        words => words.iter().any(|word| step.name.contains(word)),
    };
    let wanted = STEPS.iter().filter(is_wanted).copied();
    Ok(wanted.skip(part.0 - 1).step_by(part.1).collect())
}

/// `2/3`: every third step, from the second on.
fn part_of(text: &str) -> Result<(usize, usize)> {
    let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    let (k, n): (usize, usize) = numbers.with_context(|| format!("`--part {text}`: must be K/N, as 1/3"))?;
    ensure!((1..=n).contains(&k), "`--part {text}`: K must be 1 to N");
    Ok((k, n))
}

/// Runs steps until none waits, and prints the end of each at once.
fn run_each(root: &Path, waiting: &Mutex<VecDeque<Step>>) -> Result<Vec<Ended>> {
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut all = Vec::new();
    while let Some(step) = next() {
        let ended = run_one(root, &step).with_context(|| format!("step {}", step.name))?;
        print!("{}", told(&ended, step.command));
        all.push(ended);
    }
    Ok(all)
}

fn run_one(root: &Path, step: &Step) -> Result<Ended> {
    let begun = Instant::now();
    let (outcome, processor_seconds) = match step.needs.iter().find_map(Need::lack) {
        Some(how) => (Outcome::Skipped(how), 0.0),
        None => executed(root, step)?,
    };
    Ok(Ended { name: step.name, outcome, seconds: begun.elapsed().as_secs_f64(), processor_seconds })
}

/// Where this program lies. The tests of the workspace build it again, and then the system says that it was deleted:
/// so it is asked once, before they run.
fn own_path() -> Result<&'static Path> {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    if PATH.get().is_none() {
        _ = PATH.set(env::current_exe()?);
    }
    PATH.get().map(PathBuf::as_path).context("where this program lies")
}

/// Runs the command of a step, whose output goes into a file until it is known whether somebody must see it.
fn executed(root: &Path, step: &Step) -> Result<(Outcome, f64)> {
    let target = setup::target_dir(root);
    let folder = target.join("xtask");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let path = folder.join(step.name.replace([' ', ','], "-") + ".log");
    let log = File::create(&path).with_context(|| format!("writing {}", path.display()))?;
    let line = step.command.replace("cargo xtask", "\"$XTASK\"");
    let status = Command::new("sh")
        .args(["-c", &format!("{line}\nstatus=$?\ntimes\nexit $status")])
        .env("XTASK", own_path()?)
        .env("TARGET", target)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()?;
    let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    let (text, processor_seconds) = without_times(&text);
    let last = text.lines().last().unwrap_or_default();
    let outcome = match (status.success(), last.strip_prefix("skipped: ")) {
        (false, _) => Outcome::Failed(text.to_owned()),
        (true, Some(why)) => Outcome::Skipped(why.to_owned()),
        (true, None) => Outcome::Passed,
    };
    Ok((outcome, processor_seconds))
}

/// What a step wrote, and what the shell's `times` wrote below it: user and system time of the shell, then of all that
/// it has started.
fn without_times(text: &str) -> (&str, f64) {
    let lines = text.trim_end().rsplitn(3, '\n').collect::<Vec<_>>();
    let seconds = |word: &str| -> Option<f64> {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?)
    };
    let all = |line: &str| line.split_whitespace().map(seconds).sum::<Option<f64>>();
    match lines.as_slice() {
        [children, _shell, rest @ ..] => match all(children) {
            Some(seconds) => (rest.first().unwrap_or(&""), seconds),
            None => (text, 0.0),
        },
        _ => (text, 0.0),
    }
}

/// One line, and of a step that failed what it wrote.
fn told(ended: &Ended, command: &str) -> String {
    let Ended { name, outcome, seconds, processor_seconds } = ended;
    let line = |word: &str| format!("{name:<24} {word:<8} {seconds:>6.0} s {processor_seconds:>6.0} s of processors");
    match outcome {
        Outcome::Passed => format!("{}\n", line("ok")),
        Outcome::Skipped(how) => format!("{}: {how}\n", line("skipped")),
        Outcome::Failed(text) => format!("{}\n{}\nagain: {command}\n", line("FAILED"), text.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn run_line(command: &'static str) -> Result<Ended> {
        run_one(&setup::root()?, &step("of a test", Lane::Beside, Runs::Always, &[], command))
    }

    #[test]
    fn a_step_passes_is_skipped_or_fails_with_what_it_wrote() -> Result<()> {
        assert_eq!(run_line("echo much")?.outcome, Outcome::Passed);
        let skipped = run_line("echo 'skipped: no tool'")?.outcome;
        assert_eq!(skipped, Outcome::Skipped("no tool".to_owned()));
        let failed = run_line("echo one; echo two >&2; false")?;
        assert_eq!(failed.outcome, Outcome::Failed("one\ntwo".to_owned()));
        assert!(told(&failed, "a command").ends_with("s of processors\none\ntwo\nagain: a command\n"));
        Ok(())
    }

    #[test]
    fn the_processor_time_of_a_step_is_that_of_its_programs() {
        let (text, seconds) = without_times("text\n0m0.01s 0m0.00s\n1m2.50s 0m0.25s\n");
        assert_eq!((text, seconds), ("text", 62.75));
    }

    #[test]
    fn steps_are_chosen_by_all_by_name_and_by_part() -> Result<()> {
        let names = |args: &str| -> Result<Vec<&str>> { Ok(chosen(&words(args))?.iter().map(|it| it.name).collect()) };
        let (quick, all) = (names("")?, names("--all")?);
        assert!(quick.contains(&"loom, quick") && !quick.contains(&"loom") && !quick.contains(&"docs"), "{quick:?}");
        assert!(all.contains(&"loom") && !all.contains(&"loom, quick") && all.contains(&"tidy"), "{all:?}");
        assert_eq!(names("docs format")?, ["format", "docs"]);
        let mut parts = [names("--all --part 1/3")?, names("--all --part 2/3")?, names("--part 3/3 --all")?].concat();
        parts.sort_by_key(|name| all.iter().position(|known| known == name));
        assert_eq!(parts, all);
        for wrong in ["lint", "--part 4/3", "--part 0/3", "--part", "--fast"] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }
}
