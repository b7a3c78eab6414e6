//! `cargo xtask mutants`: each historical bug of `verify/mutants/` is put into a copy of the protocol, and must be
//! caught; the protocol as it is must stand a hundred times as many seeds.

mod patch;
mod trial;

use crate::outcome::Outcome;
use crate::setup;
use crate::workshop::Sets;
use anyhow::{Context, Result, bail};
use std::path::Path;
use trial::{Row, Trial};

/// Seeds through which each bug is looked for.
const BUDGET: u64 = 50_000;
/// The protocol as it is is searched this many times as long.
const CLEAN_TIMES: u64 = 100;
/// With fewer, a patch has been lost.
const LEAST: usize = 25;

/// What is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Each bug, then the protocol as it is.
    Everything,
    /// The protocol as it is.
    Clean,
}

/// What is asked for on the command line.
struct Wish<'a> {
    is_json: bool,
    /// Only the mutants whose name contains this.
    only: Option<&'a str>,
    what: What,
    /// How often the budget is spent on the protocol as it is.
    clean_times: u64,
    /// Every so many-th mutant is looked for; the others must still apply.
    every: usize,
}

/// The verb; false if a bug was not caught, or something was found without one.
///
/// # Errors
/// If the arguments are wrong, or a patch does not apply or build.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    search(root, &parse(args)?)
}

fn search(root: &Path, wish: &Wish<'_>) -> Result<bool> {
    let patches = patch::read_all(&root.join("verify/mutants"))?;
    if patches.len() < LEAST {
        bail!("verify/mutants/ holds {} patches; at least {LEAST} are asked for", patches.len());
    }
    let trial = Trial::new(root, &setup::target_dir(root), BUDGET)?;
    let mut rows = Vec::new();
    let wanted = |name: &str| wish.what == What::Everything && wish.only.is_none_or(|part| name.contains(part));
    for (n, patch) in patches.iter().filter(|patch| wanted(&patch.name)).enumerate() {
        if n % wish.every != 0 {
            trial.try_on(patch).with_context(|| patch.file.display().to_string())?;
            continue;
        }
        let found = trial.look_for(patch).with_context(|| patch.file.display().to_string())?;
        found.iter().for_each(|row| tell(row, wish.is_json));
        rows.extend(found);
    }
    let mut is_clean = true;
    for sets in Sets::ALL {
        let clean = trial.unmutated(wish.clean_times, sets)?;
        tell(&clean, wish.is_json);
        is_clean &= clean.by.is_none();
    }
    let caught = rows.iter().filter(|row| row.by.is_some()).count();
    if !wish.is_json && wish.what == What::Everything {
        println!("{caught} of {} searches found the bug; {BUDGET} seeds each", rows.len());
    }
    Ok(caught == rows.len() && is_clean)
}

/// The step of `cargo xtask test`: all apply, each fourth is caught, and the protocol as it is holds for one budget in
/// each build.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    let is_fine = search(root, &Wish { is_json: false, only: None, what: What::Everything, clean_times: 1, every: 4 })?;
    Ok(if is_fine { Outcome::Ok(String::new()) } else { Outcome::Failed("see the table above".to_owned()) })
}

fn parse(args: &[String]) -> Result<Wish<'_>> {
    let mut wish = Wish { is_json: false, only: None, what: What::Everything, clean_times: CLEAN_TIMES, every: 1 };
    for arg in args {
        match arg.as_str() {
            "--json" => wish.is_json = true,
            "--quick" => wish.clean_times = 1,
            "--clean" => wish.what = What::Clean,
            flag if flag.starts_with('-') => {
                bail!("`mutants` takes `--json`, `--quick`, `--clean` and a name, got `{flag}`")
            }
            name => wish.only = Some(name),
        }
    }
    Ok(wish)
}

fn tell(row: &Row, is_json: bool) {
    println!("{}", if is_json { json(row) } else { line(row) });
}

fn line(row: &Row) -> String {
    let by = row.by.as_deref().unwrap_or("NOT CAUGHT");
    let by = if row.mutant == "(none)" && row.by.is_none() { "nothing found" } else { by };
    let Row { mutant, needed, unit, seconds, origin, .. } = row;
    format!("{mutant:<44} {by:<18} {needed:>9} {unit:<6} {seconds:>7.2} s  {origin}")
}

fn json(row: &Row) -> String {
    serde_json::json!({
        "mutant": row.mutant, "origin": row.origin, "caught": row.by.is_some(), "by": row.by,
        "needed": row.needed, "unit": row.unit, "seconds": row.seconds,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(by: Option<&str>) -> Row {
        let by = by.map(str::to_owned);
        Row { mutant: "a-bug".to_owned(), origin: "somebody".to_owned(), by, needed: 12, unit: "seeds", seconds: 0.5 }
    }

    #[test]
    fn a_bug_that_is_not_caught_stands_out() {
        assert!(line(&row(None)).contains("NOT CAUGHT"));
        assert!(line(&row(Some("freed frame"))).contains("freed frame"));
        assert!(json(&row(None)).contains("\"caught\":false"));
    }

    #[test]
    fn an_unknown_flag_is_refused_by_name() {
        let error = parse(&["--fast".to_owned()]).map(|_| ()).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("`--fast`")));
    }

    #[test]
    fn every_patch_of_the_tree_has_its_origin() -> Result<()> {
        let patches = patch::read_all(&setup::root()?.join("verify/mutants"))?;
        assert!(patches.len() >= LEAST, "{}", patches.len());
        Ok(())
    }
}
