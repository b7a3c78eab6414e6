//! Those who must notice a bug: seeds of the adversarial machine, every schedule of a program, or a test.

use super::copy::{Program, Programs};
use super::patch::{Judge, Patch, Witness};
use super::schemata::CHOICE;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Deviations of the schedules that are explored, unless the patch asks for more.
const BOUND: u8 = 2;
/// A test with a bug in it need not end. Without one none takes a third of this of a CPU, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(60);
/// One that waits for something takes no CPU. Without a bug none takes a fifth of this.
const LIMIT_OF_ALL: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(5);

/// What became of one bug.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Search {
    pub(super) mutant: String,
    pub(super) origin: String,
    /// The property that was broken, or the test that failed, if one did.
    pub(super) by: Option<String>,
    /// Seeds, states or tests until then, or all that there were.
    pub(super) needed: u64,
    /// Which of these.
    pub(super) unit: &'static str,
    /// How long the search alone took.
    pub(super) seconds: f64,
}

/// Asks the judge of `patch`, one of `programs`, which have the bug behind `number`, or have it as they are.
pub(super) fn ask(programs: &Programs, patch: &Patch, number: Option<u32>, budget: u64) -> Result<Vec<Search>> {
    let start = Instant::now();
    let search = |by, needed, unit| Search {
        mutant: patch.name.clone(),
        origin: patch.origin.clone(),
        by,
        needed,
        unit,
        seconds: start.elapsed().as_secs_f64(),
    };
    Ok(match &patch.judge {
        Judge::Test(witness) => {
            let (program, name) = find(programs, witness)?;
            let has_failed = !passes(program, &name, number)?;
            vec![search(has_failed.then_some(name), 1, "test")]
        }
        Judge::Seeds { program, policy, explored } => {
            let only = [("--program", program), ("--policy", policy)];
            let only: Vec<&str> =
                only.iter().flat_map(|(flag, value)| value.iter().flat_map(|value| [*flag, value])).collect();
            let (by, seeds) = spend(programs.checker()?, number, budget, &only)?;
            let mut searches = vec![search(by, seeds, "seeds")];
            if let Some(program) = explored {
                let (by, states) = explore(programs.checker()?, number, program, BOUND)?;
                let all = search(by, states, "states");
                searches.push(Search { mutant: format!("  all of {program}"), origin: patch.name.clone(), ..all });
            }
            searches
        }
        Judge::States { program, deviations } => {
            let (by, states) = explore(programs.checker()?, number, program, *deviations)?;
            vec![search(by, states, "states")]
        }
    })
}

/// Runs each test without a bug: it must pass.
pub(super) fn hear_without_a_bug(programs: &Programs, witnesses: &BTreeSet<Witness>) -> Result<()> {
    for witness in witnesses {
        let (program, name) = find(programs, witness)?;
        if !passes(program, &name, None)? {
            bail!("`{name}` of `cargo test --package {}` fails without any bug", witness.tests);
        }
    }
    Ok(())
}

/// Searches `seeds` without a bug.
pub(super) fn search_unmutated(programs: &Programs, seeds: u64, origin: &str) -> Result<Search> {
    let start = Instant::now();
    let (by, needed) = spend(programs.checker()?, None, seeds, &[])?;
    Ok(Search {
        mutant: super::NO_BUG.to_owned(),
        origin: origin.to_owned(),
        by,
        needed,
        unit: "seeds",
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// The program that has the test, and the test's whole name.
fn find<'p>(programs: &'p Programs, Witness { tests, test }: &Witness) -> Result<(&'p Program, String)> {
    let mut found = Vec::new();
    for program in programs.of_tests(tests) {
        let output = Command::new(&program.file).arg("--list").output().context("listing tests")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let is_it =
            |name: &&str| name.strip_suffix(&**test).is_some_and(|above| above.is_empty() || above.ends_with("::"));
        found.extend(names.filter(is_it).map(|name| (program, name.to_owned())));
    }
    match <[_; 1]>::try_from(found) {
        Ok([one]) => Ok(one),
        Err(found) => bail!("`{tests}` has {} tests `{test}`", found.len()),
    }
}

/// Whether the test passes.
fn passes(program: &Program, name: &str, number: Option<u32>) -> Result<bool> {
    ends_well(program, number, &["--exact", name])
}

/// Whether a program ends with success; one that does not end does not.
pub(super) fn ends_well(program: &Program, number: Option<u32>, args: &[&str]) -> Result<bool> {
    let mut command = chosen(program, number);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| program.file.display().to_string())?;
    let start = Instant::now();
    while start.elapsed() < LIMIT_OF_ALL && cpu_time(&child).is_none_or(|time| time < LIMIT) {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        thread::sleep(PAUSE);
    }
    child.kill()?;
    child.wait()?;
    Ok(false)
}

/// What the threads of a process have had of the CPUs, where the system says so.
fn cpu_time(child: &Child) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // The 14th and the 15th word, in hundredths of a second; the second one ends with the last parenthesis.
    let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |word: usize| words.get(word)?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}

fn chosen(program: &Program, number: Option<u32>) -> Command {
    let mut command = Command::new(&program.file);
    command.current_dir(&program.folder).env(CHOICE, number.unwrap_or(0).to_string());
    command
}

/// Goes through seeds, all of one program or policy if `only` names one: what was found, and after how many.
fn spend(checker: &Program, number: Option<u32>, seeds: u64, only: &[&str]) -> Result<(Option<String>, u64)> {
    let seeds = seeds.to_string();
    let found = check(checker, number, &[&["--budget", &seeds], only].concat())?;
    Ok((found["finding"].as_str().map(str::to_owned), found["seeds"].as_u64().context("the checker counts no seeds")?))
}

/// Goes through all schedules of a program.
fn explore(checker: &Program, number: Option<u32>, program: &str, deviations: u8) -> Result<(Option<String>, u64)> {
    let bound = deviations.to_string();
    let args = ["--program", program, "--policy", "tlbkit", "--exhaustive", &bound];
    let found = check(checker, number, &args)?;
    Ok((
        found["finding"].as_str().map(str::to_owned),
        found["states"].as_u64().context("the checker counts no states")?,
    ))
}

/// What the checker answers.
fn check(checker: &Program, number: Option<u32>, args: &[&str]) -> Result<serde_json::Value> {
    let output = chosen(checker, number).args(args).arg("--json").output().context("running the checker")?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("the checker ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("reading the checker's answer")
}
