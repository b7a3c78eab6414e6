//! `cargo xtask mutants`: each historical bug of `verify/mutants/` is put into a copy of the protocol, and must be
//! caught; the protocol as it is must stand a hundred times as many seeds. Bugs of `verify/mutants/by-tests/`, in what
//! stands around the protocol, must make the test fail that they name.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::setup::{self, output};
use crate::workshop::{OBSERVED, Sets, TESTKIT, Workshop};

/// Seeds through which each bug is looked for.
const BUDGET: u64 = 50_000;
/// The protocol as it is is searched this many times as long.
const CLEAN_TIMES: u64 = 100;
/// Deviations of the schedules that are explored, unless the patch asks for more.
const BOUND: u8 = 2;
/// Of so many patches for the checker a sample has one: each costs a build. It has none that tests find, whose builds
/// would be a second workspace.
const SAMPLE_EVERY: usize = 33;

/// What the checker needs to be built.
const CHECKER_CRATES: [&str; 6] =
    ["lib/tlbkit", "lib/tlbkit-arch", "lib/tlbkit-pmap", TESTKIT, OBSERVED, "verify/tlbkit-check"];
/// The crates that are judged by their own tests, and what they link; and what one of them reads besides.
const TESTED_CRATES: [&str; 9] = [
    "lib/tlbkit",
    "lib/tlbkit-arch",
    "lib/tlbkit-pmap",
    "lib/tlbkit-x86",
    "lib/tlbkit-c",
    TESTKIT,
    OBSERVED,
    "sim/tlbkit-workloads",
    "sim/tlbkit-sim",
];
const TESTED_DATA: &str = "sim/machines";

/// What is asked for.
#[derive(Debug)]
struct Wish<'a> {
    /// Only the bugs whose name contains this.
    only: Option<&'a str>,
    /// No bug, only the protocol as it is.
    is_clean: bool,
    /// How often the budget is spent on the protocol as it is.
    clean_times: u64,
    /// Every so many-th bug is looked for; the others must still apply.
    every: usize,
}

fn parse(args: &[String]) -> Result<Wish<'_>> {
    let mut wish = Wish { only: None, is_clean: false, clean_times: CLEAN_TIMES, every: 1 };
    for arg in args {
        match arg.as_str() {
            "--quick" => wish.clean_times = 1,
            "--clean" => wish.is_clean = true,
            "--sample" => (wish.clean_times, wish.every) = (1, SAMPLE_EVERY),
            flag if flag.starts_with('-') => {
                bail!("`mutants` takes --quick, --clean, --sample and a name, got `{flag}`")
            }
            // Who asks for one bug does not ask for millions of seeds without it.
            name => (wish.only, wish.clean_times) = (Some(name), 1),
        }
    }
    Ok(wish)
}

/// The verb; false if a bug was not caught, or something was found without one.
///
/// # Errors
/// If the arguments are wrong, or a patch does not apply or build.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    let wish = parse(args)?;
    let mut searches = Vec::new();
    let checker = CheckerCopy::new(root)?;
    if !wish.is_clean {
        for (n, patch) in patches(&root.join("verify/mutants"), &wish)?.iter().enumerate() {
            let is_wanted = n % wish.every == 0;
            let found =
                if is_wanted { checker.look_for(patch) } else { checker.0.tries(&patch.file).map(|()| Vec::new()) };
            let found = found.with_context(|| patch.file.display().to_string())?;
            found.iter().for_each(|search| search.tell());
            searches.extend(found);
        }
        let by_checker = searches.len();
        by_tests(root, &wish, &mut searches)?;
        ensure!(!searches.is_empty(), "no bug of verify/mutants has `{}` in its name", wish.only.unwrap_or_default());
        if by_checker == 0 {
            return Ok(searches.iter().all(|search| search.by.is_some()));
        }
    }
    let caught = searches.iter().filter(|search| search.by.is_some()).count();
    let mut is_fine = caught == searches.len();
    for sets in Sets::ALL.into_iter().take(if wish.every > 1 { 1 } else { 2 }) {
        let clean = checker.unmutated(wish.clean_times, sets)?;
        clean.tell();
        is_fine &= clean.by.is_none();
    }
    if !wish.is_clean {
        println!("{caught} of {} searches found the bug; {BUDGET} seeds each, or the tests of a crate", searches.len());
    }
    Ok(is_fine)
}

/// One bug: a header, then a unified diff. The header says where the bug comes from (`Origin:`), what it breaks
/// (`Breaks:`) and, for some, which program alone the seeds run (`Program:`), which one shows it when all its schedules
/// are explored (`Explored:`, with `Deviations:` if seeds do not show it), or in which build alone it shows (`Build:`).
/// Those of `by-tests/` name the tests that are run (`Tests:`), and the one that must fail (`Fails:`).
#[derive(Debug)]
struct Patch {
    file: PathBuf,
    name: String,
    origin: String,
    program: Option<String>,
    explored: Option<String>,
    deviations: Option<u8>,
    sets: Sets,
    /// What `cargo test --package` is given, and the test that must fail.
    witness: Option<(String, String)>,
}

/// The bugs of a folder that are asked for, by name.
fn patches(folder: &Path, wish: &Wish<'_>) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "patch") {
            let text = fs::read_to_string(&file)?;
            patches.push(patch(&file, &text).with_context(|| file.display().to_string())?);
        }
    }
    patches.retain(|patch| wish.only.is_none_or(|part| patch.name.contains(part)));
    patches.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(patches)
}

fn patch(file: &Path, text: &str) -> Result<Patch> {
    let header = |field: &str| {
        let value = text.lines().take_while(|line| !line.starts_with("--- ")).find_map(|line| line.strip_prefix(field));
        value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let (Some(origin), Some(_)) = (header("Origin:"), header("Breaks:")) else {
        bail!("no lines `Origin: ...` and `Breaks: ...` before the diff")
    };
    let sets = match header("Build:").as_deref() {
        None => Sets::Wide,
        Some("narrow_sets") => Sets::Narrow,
        Some(other) => bail!("`Build:` is `narrow_sets` or left out, not `{other}`"),
    };
    let explored = header("Explored:");
    let deviations = header("Deviations:").map(|text| text.parse()).transpose().context("`Deviations:`")?;
    ensure!(deviations.is_none() || explored.is_some(), "`Deviations: ...` without `Explored: ...`");
    let witness = header("Tests:").zip(header("Fails:"));
    ensure!(witness.is_some() || header("Tests:").or(header("Fails:")).is_none(), "one of `Tests:` and `Fails:` alone");
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Patch { file: file.to_owned(), name, origin, program: header("Program:"), explored, deviations, sets, witness })
}

/// What became of one bug.
#[derive(Debug)]
struct Search {
    mutant: String,
    origin: String,
    /// The property that was broken, or the test that failed, if one was or did.
    by: Option<String>,
    /// Seeds, states or failed tests until then, or all that there were.
    needed: u64,
    unit: &'static str,
    /// How long the search alone took.
    seconds: f64,
}

const NO_MUTANT: &str = "(none)";

impl Search {
    fn tell(&self) {
        let Self { mutant, origin, by, needed, unit, seconds } = self;
        let nothing = if mutant == NO_MUTANT { "nothing found" } else { "NOT CAUGHT" };
        let by = by.as_deref().unwrap_or(nothing);
        println!("{mutant:<44} {by:<18} {needed:>9} {unit:<6} {seconds:>7.2} s  {origin}");
    }
}

/// A copy of the protocol and of what checks it.
struct CheckerCopy(Workshop);

impl CheckerCopy {
    fn new(root: &Path) -> Result<Self> {
        Ok(Self(Workshop::new(root, &setup::target_dir(root).join("mutants"), &CHECKER_CRATES)?))
    }

    /// Looks for `patch` in a copy that has it: through seeds, unless it names its deviations, then through all
    /// schedules of its program, if any.
    fn look_for(&self, patch: &Patch) -> Result<Vec<Search>> {
        self.0.with(&patch.file, || {
            let checker = self.build(1, patch.sets)?;
            let mut searches = Vec::new();
            if patch.deviations.is_none() {
                let only = patch.program.as_ref().map(|name| ["--program", name]);
                let only = only.as_ref().map_or(&[][..], |args| args);
                searches.push(self.seeds(&checker, &patch.name, &patch.origin, BUDGET, only)?);
            }
            if let Some(program) = &patch.explored {
                let bound = patch.deviations.unwrap_or(BOUND).to_string();
                let args = ["--program", program, "--policy", "tlbkit", "--exhaustive", &bound];
                let all = format!("all of {program}");
                let (mutant, origin) =
                    if patch.deviations.is_some() { (&patch.name, &all) } else { (&all, &patch.name) };
                searches.push(search(&checker, &args, mutant, origin, "states")?);
            }
            Ok(searches)
        })
    }

    /// Searches `times` as long on the protocol without a bug: nothing may be found.
    fn unmutated(&self, times: u64, sets: Sets) -> Result<Search> {
        let what = match sets {
            Sets::Wide => "the protocol as it is",
            Sets::Narrow => "the same with two CPUs a word",
        };
        self.seeds(&self.build(times, sets)?, NO_MUTANT, what, BUDGET * times, &[])
    }

    fn seeds(&self, checker: &Path, mutant: &str, origin: &str, budget: u64, only: &[&str]) -> Result<Search> {
        search(checker, &[&["--budget", &budget.to_string()], only].concat(), mutant, origin, "seeds")
    }

    /// Builds the checker; where it is. A bug is built once and run for a second or two, for which a quick build is
    /// worth more than quick code; millions of seeds are worth the release build.
    fn build(&self, times: u64, sets: Sets) -> Result<PathBuf> {
        let target = self.0.target.join(sets.folder());
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--quiet", "--package", "tlbkit-check"]).current_dir(&self.0.root);
        // What a bug leaves unused is not its point.
        cargo.env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", format!("--cap-lints=allow {}", sets.flags()));
        if times == 1 {
            cargo.args(["--config", "profile.release.opt-level=1", "--config", "profile.release.codegen-units=16"]);
        }
        output(&mut cargo).context("it does not build")?;
        Ok(target.join("release/tlbkit-check"))
    }
}

fn search(checker: &Path, args: &[&str], mutant: &str, origin: &str, unit: &'static str) -> Result<Search> {
    let start = Instant::now();
    let output = Command::new(checker).args(args).arg("--json").output().context("running the checker")?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("the checker ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let found: Value = serde_json::from_slice(&output.stdout).context("reading the checker's answer")?;
    Ok(Search {
        mutant: mutant.to_owned(),
        origin: origin.to_owned(),
        by: found["finding"].as_str().map(str::to_owned),
        needed: found[unit].as_u64().with_context(|| format!("the checker counts no {unit}"))?,
        unit,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Bugs around the protocol: each is put into a copy of the crates, and the test must fail that its patch names. The
/// tests must pass on the copy as it is, since what always fails witnesses nothing.
fn by_tests(root: &Path, wish: &Wish<'_>, searches: &mut Vec<Search>) -> Result<()> {
    let copy = Workshop::new(root, &setup::target_dir(root).join("mutants-by-tests"), &TESTED_CRATES)?;
    copy.add(root, TESTED_DATA)?;
    let mut heard = BTreeSet::new();
    for patch in &patches(&root.join("verify/mutants/by-tests"), wish)? {
        let context = || patch.file.display().to_string();
        let (tests, test) = patch.witness.as_ref().context("no lines `Tests:` and `Fails:`").with_context(context)?;
        if wish.every > 1 {
            copy.tries(&patch.file).with_context(context)?;
            continue;
        }
        if heard.insert(tests.clone()) {
            let failed = failed(&cargo_test(&copy, tests, &[])?)?;
            ensure!(failed.is_empty(), "`cargo test {tests}` fails without any bug: {}", failed.join(", "));
        }
        let start = Instant::now();
        let found = copy.with(&patch.file, || {
            let built = cargo_test(&copy, tests, &["--no-run"])?;
            ensure!(built.status.success(), "it does not build: {}", String::from_utf8_lossy(&built.stderr).trim());
            failed(&cargo_test(&copy, tests, &[])?)
        });
        let found = found.with_context(context)?;
        let search = Search {
            mutant: patch.name.clone(),
            origin: patch.origin.clone(),
            by: found.iter().find(|name| name.ends_with(test)).cloned(),
            needed: found.len() as u64,
            unit: "tests",
            seconds: start.elapsed().as_secs_f64(),
        };
        search.tell();
        searches.push(search);
    }
    Ok(())
}

fn cargo_test(copy: &Workshop, tests: &str, more: &[&str]) -> Result<Output> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--quiet", "--no-fail-fast", "--package"]).args(tests.split_whitespace()).args(more);
    cargo.current_dir(&copy.root).env("CARGO_TARGET_DIR", &copy.target).env("CARGO_PROFILE_DEV_DEBUG", "0");
    // What an interrupted search leaves behind must not decide the next one.
    cargo.env("CARGO_INCREMENTAL", "0");
    // What a bug leaves unused is not its point. Not `allow`: tests of the C interface build an archive for a machine
    // without a system, and cargo learns by a warning of the compiler what that target cannot make.
    cargo.env("RUSTFLAGS", "--cap-lints=warn").output().context("running cargo")
}

/// Names of the tests that failed; an error if none did and the run did not pass either.
fn failed(output: &Output) -> Result<Vec<String>> {
    let names = failed_in(&String::from_utf8_lossy(&output.stdout));
    if names.is_empty() && !output.status.success() {
        bail!("the tests ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(names)
}

/// What stands under each last heading `failures:` of a test program.
fn failed_in(text: &str) -> Vec<String> {
    let parts = text.split("failures:\n");
    let lines = parts.flat_map(|part| part.lines().take_while(|line| line.starts_with("    ") || line.is_empty()));
    let names = lines.map(str::trim).filter(|name| !name.is_empty() && !name.contains(' '));
    names.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_without_an_origin_is_refused() {
        let read = |text: &str| patch(Path::new("m/a-bug.patch"), text);
        let good = "Origin: somebody\nBreaks: something\n\n--- a/x\n+++ b/x\n";
        assert!(read(good).is_ok_and(|patch| patch.name == "a-bug" && patch.witness.is_none()));
        for bad in [
            "Breaks: something\n--- a/x\n",
            "Origin:\nBreaks: b\n",
            "Origin: o\nBreaks: b\nBuild: x\n",
            "Origin: o\nBreaks: b\nTests: tlbkit-x86\n",
            "Origin: o\nBreaks: b\nDeviations: 3\n",
            "Origin: o\nBreaks: b\nExplored: x\nDeviations: many\n",
            "--- a/x\nOrigin: late\nBreaks: late\n",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_patch_of_the_tree_is_read() -> Result<()> {
        let (folder, wish) = (setup::root()?.join("verify/mutants"), parse(&[])?);
        let by_checker = patches(&folder, &wish)?;
        assert!(by_checker.len() >= 25 && by_checker.iter().all(|patch| patch.witness.is_none()));
        let by_tests = patches(&folder.join("by-tests"), &wish)?;
        assert!(by_tests.len() >= 5 && by_tests.iter().all(|patch| patch.witness.is_some()));
        assert!(parse(&["--fast".to_owned()]).is_err_and(|error| error.to_string().contains("`--fast`")));
        Ok(())
    }

    #[test]
    fn failures_are_read_by_name_out_of_several_programs() {
        let text = "\nrunning 2 tests\n.F\nfailures:\n\n---- b::two stdout ----\n\nthread 'b::two' panicked\n\n\n\
                    failures:\n    b::two\n    a::one\n\ntest result: FAILED. 1 passed\n\nrunning 1 test\nF\n\
                    failures:\n\n---- three stdout ----\n\n    quoted text\n\nfailures:\n    three\n\ntest result: F\n";
        assert_eq!(failed_in(text), ["a::one", "b::two", "three"]);
        assert_eq!(failed_in("running 1 test\n.\ntest result: ok. 1 passed\n"), [] as [&str; 0]);
    }
}
