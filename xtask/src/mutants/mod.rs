//! `cargo xtask mutants`: each historical bug of `verify/mutants/` is put into a copy of the protocol, and must be
//! caught; the protocol as it is must stand a hundred times as many seeds. Bugs of `verify/mutants/by-tests/`, in what
//! stands around the protocol, must make the test fail that they name.

mod by_tests;
mod patch;
mod trial;

use crate::outcome::StepOutcome;
use crate::setup;
use crate::workshop::Sets;
use anyhow::{Context, Result, bail};
use by_tests::TestedCopy;
use patch::Patch;
use std::collections::BTreeSet;
use std::path::Path;
use trial::{CheckerCopy, Search};

/// Seeds through which each bug is looked for.
const BUDGET: u64 = 50_000;
/// The protocol as it is is searched this many times as long.
const CLEAN_TIMES: u64 = 100;
/// With fewer, a patch has been lost.
const LEAST: usize = 25;
const LEAST_BY_TESTS: usize = 5;

/// What is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Each bug, then the protocol as it is.
    Everything,
    /// The protocol as it is.
    Clean,
}

/// How each search is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// A line of a table.
    Text,
    /// A line of JSON.
    Json,
}

/// Where the tests that are to find a bug are run on the unchanged source, on which they must pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// In the search, before the first of their bugs is put in.
    Here,
    /// In `test workspace`, another step of `cargo xtask test`: it runs these tests on the tree, the search on a copy.
    Elsewhere,
}

/// What is asked for on the command line.
struct Wish<'a> {
    format: Format,
    /// Only the mutants whose name contains this.
    only: Option<&'a str>,
    what: What,
    /// How often the budget is spent on the protocol as it is.
    clean_times: u64,
    /// Every so many-th mutant is looked for; the others must still apply. If not all are, none of [`STEP_LEAVES`] is.
    every: usize,
    heard: Heard,
}

/// The verb; false if a bug was not caught, or something was found without one.
///
/// # Errors
/// If the arguments are wrong, or a patch does not apply or build.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    search(root, &parse(args)?)
}

fn search(root: &Path, wish: &Wish<'_>) -> Result<bool> {
    let copy = CheckerCopy::new(root, &setup::target_dir(root), BUDGET)?;
    let mut searches = Vec::new();
    if wish.what == What::Everything {
        searches.extend(by_checker(root, &copy, wish)?);
        searches.extend(by_tests(root, wish)?);
        if searches.is_empty() {
            bail!("no bug of `verify/mutants/` has `{}` in its name", wish.only.unwrap_or_default());
        }
    }
    let is_about_tests = !searches.is_empty() && searches.iter().all(|search| search.unit == by_tests::UNIT);
    let mut is_clean = true;
    for sets in Sets::ALL.into_iter().filter(|_| !is_about_tests) {
        let clean = copy.unmutated(wish.clean_times, sets)?;
        tell(&clean, wish.format);
        is_clean &= clean.by.is_none();
    }
    let caught = searches.iter().filter(|search| search.by.is_some()).count();
    if wish.format == Format::Text && wish.what == What::Everything {
        println!("{caught} of {} searches found the bug; {BUDGET} seeds each, or the tests of a crate", searches.len());
    }
    Ok(caught == searches.len() && is_clean)
}

/// The patches of a folder, of which there are at least so many, that are asked for.
fn wanted(folder: &Path, least: usize, wish: &Wish<'_>) -> Result<Vec<Patch>> {
    let mut patches = patch::read_all(folder)?;
    if patches.len() < least {
        bail!("{} holds {} patches; at least {least} are asked for", folder.display(), patches.len());
    }
    patches.retain(|patch| wish.only.is_none_or(|part| patch.name.contains(part)));
    Ok(patches)
}

/// Bugs of the protocol, on the adversarial machine.
fn by_checker(root: &Path, copy: &CheckerCopy, wish: &Wish<'_>) -> Result<Vec<Search>> {
    let mut searches = Vec::new();
    for (n, patch) in wanted(&root.join("verify/mutants"), LEAST, wish)?.iter().enumerate() {
        if n % wish.every != 0 {
            copy.try_on(patch).with_context(|| patch.file.display().to_string())?;
            continue;
        }
        let found = copy.look_for(patch).with_context(|| patch.file.display().to_string())?;
        found.iter().for_each(|search| tell(search, wish.format));
        searches.extend(found);
    }
    Ok(searches)
}

/// Bugs around it, by the tests that they name.
fn by_tests(root: &Path, wish: &Wish<'_>) -> Result<Vec<Search>> {
    let patches = wanted(&root.join("verify/mutants/by-tests"), LEAST_BY_TESTS, wish)?;
    let copy = TestedCopy::new(root, &setup::target_dir(root))?;
    let (mut searches, mut heard) = (Vec::new(), BTreeSet::new());
    for (n, patch) in patches.iter().enumerate() {
        let context = || patch.file.display().to_string();
        let witness = patch.witness.as_ref().context("no lines `Tests: ...` and `Fails: ...`").with_context(context)?;
        if n % wish.every != 0 || wish.every > 1 && witness.tests.starts_with(STEP_LEAVES) {
            copy.try_on(patch).with_context(context)?;
            continue;
        }
        if wish.heard == Heard::Here && heard.insert(&witness.tests) {
            copy.hear_without_a_bug(witness)?;
        }
        let search = copy.look_for(patch, witness).with_context(context)?;
        tell(&search, wish.format);
        searches.push(search);
    }
    Ok(searches)
}

/// Of so many patches the step of `cargo xtask test` looks for one. Each costs a build, so they are few, and of each
/// kind: by seeds, by all schedules, and by tests of the protocol and of the instructions.
const STEP_EVERY: usize = 24;
/// Bugs that tests of this crate find are left to the verb: to build one takes longer than all the others together.
const STEP_LEAVES: &str = "tlbkit-sim";

/// The step of `cargo xtask test`: all apply, those looked for are caught, the protocol as it is holds for one budget
/// in each build.
pub(crate) fn check(root: &Path) -> Result<StepOutcome> {
    let whole = parse(&[])?;
    let wish = Wish { clean_times: 1, every: STEP_EVERY, heard: Heard::Elsewhere, ..whole };
    let is_fine = search(root, &wish)?;
    Ok(if is_fine { StepOutcome::Ok(String::new()) } else { StepOutcome::Failed("see the table above".to_owned()) })
}

fn parse(args: &[String]) -> Result<Wish<'_>> {
    let mut wish = Wish {
        format: Format::Text,
        only: None,
        what: What::Everything,
        clean_times: CLEAN_TIMES,
        every: 1,
        heard: Heard::Here,
    };
    for arg in args {
        match arg.as_str() {
            "--json" => wish.format = Format::Json,
            "--quick" => wish.clean_times = 1,
            "--clean" => wish.what = What::Clean,
            flag if flag.starts_with('-') => {
                bail!("`mutants` takes `--json`, `--quick`, `--clean` and a name, got `{flag}`")
            }
            // Who asks for one bug does not ask for millions of seeds without it.
            name => (wish.only, wish.clean_times) = (Some(name), 1),
        }
    }
    Ok(wish)
}

fn tell(search: &Search, format: Format) {
    match format {
        Format::Text => println!("{}", line(search)),
        Format::Json => println!("{}", json(search)),
    }
}

fn line(search: &Search) -> String {
    let by = search.by.as_deref().unwrap_or("NOT CAUGHT");
    let by = if search.mutant == "(none)" && search.by.is_none() { "nothing found" } else { by };
    let Search { mutant, needed, unit, seconds, origin, .. } = search;
    format!("{mutant:<44} {by:<18} {needed:>9} {unit:<6} {seconds:>7.2} s  {origin}")
}

fn json(search: &Search) -> String {
    serde_json::json!({
        "mutant": search.mutant, "origin": search.origin, "caught": search.by.is_some(), "by": search.by,
        "needed": search.needed, "unit": search.unit, "seconds": search.seconds,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(by: Option<&str>) -> Search {
        let by = by.map(str::to_owned);
        Search {
            mutant: "a-bug".to_owned(),
            origin: "somebody".to_owned(),
            by,
            needed: 12,
            unit: "seeds",
            seconds: 0.5,
        }
    }

    #[test]
    fn a_bug_that_is_not_caught_stands_out() {
        assert!(line(&searched(None)).contains("NOT CAUGHT"));
        assert!(line(&searched(Some("freed frame"))).contains("freed frame"));
        assert!(json(&searched(None)).contains("\"caught\":false"));
    }

    #[test]
    fn an_unknown_flag_is_refused_by_name() {
        let error = parse(&["--fast".to_owned()]).map(|_| ()).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("`--fast`")));
    }

    #[test]
    fn every_patch_of_the_tree_has_its_origin() -> Result<()> {
        let folder = setup::root()?.join("verify/mutants");
        let patches = patch::read_all(&folder)?;
        assert!(patches.len() >= LEAST && patches.iter().all(|patch| patch.witness.is_none()), "{}", patches.len());
        let by_tests = patch::read_all(&folder.join("by-tests"))?;
        assert!(by_tests.len() >= LEAST_BY_TESTS && by_tests.iter().all(|patch| patch.witness.is_some()));
        Ok(())
    }
}
