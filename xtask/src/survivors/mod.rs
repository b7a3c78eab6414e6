//! `cargo xtask survivors`: bugs that nobody here has chosen. cargo-mutants puts each of its small changes into a copy
//! of a crate, and that crate's tests must notice it. What they do not notice must stand in
//! `verify/mutants/survivors.toml` with the reason why it is no bug.

mod excuses;

use crate::setup::{self, Ready};
use crate::workshop::{TESTED_CRATES, TESTED_DATA, Workshop};
use anyhow::{Context, Result, bail};
use excuses::{Excuses, Judge, Made};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What a changed test may take of address space. A change can make a loop collect for ever: without a limit it takes
/// all of the machine's memory before its time is over.
const MEMORY_MAX_KIB: u64 = 8 << 20;

/// What became of the changes to one crate.
#[derive(Default, PartialEq, Eq, Debug)]
struct Tally {
    noticed: usize,
    /// Noticed too: a test did not end.
    timed_out: usize,
    unbuildable: usize,
    /// Names of those that no test noticed, without their places, and how many bear each.
    survived: BTreeMap<String, usize>,
}

/// The verb; false if a change survived that is not excused.
///
/// # Errors
/// If the arguments are wrong, cargo-mutants is missing, or the unchanged crate fails its tests.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    let excuses = Excuses::read(root)?;
    let (judges, part) = chosen(&excuses, args)?;
    if let Ready::No(what) = setup::program(&["cargo-mutants"], "cargo-mutants") {
        let version = &excuses.version;
        bail!("{what}\n(or: cargo install --locked cargo-mutants@{version})");
    }
    let workshop = Workshop::new(root, &setup::target_dir(root).join("survivors"), &TESTED_CRATES)?;
    workshop.add(root, TESTED_DATA)?;
    let mut is_fine = true;
    for judge in judges {
        let tally = put_in(&workshop, judge, &excuses, &part)?;
        println!("{}", line(judge, &tally, &excuses));
        for complaint in excuses.complaints(&judge.name, &tally.survived, part.made()) {
            is_fine = false;
            println!("  {complaint}");
        }
    }
    Ok(is_fine)
}

/// Which of a crate's changes are made.
#[derive(Default, PartialEq, Eq, Debug)]
struct Part<'a> {
    /// Only the changes in files of these names.
    files: Vec<&'a str>,
    /// This many, evenly spread, or a few less.
    sample: Option<usize>,
    /// K/N: each N-th, from the K-th on.
    shard: Option<&'a str>,
}

impl Part<'_> {
    fn made(&self) -> Made {
        if *self == Self::default() { Made::All } else { Made::Part }
    }
}

/// The crates that the arguments name, all without a name, and the part of their changes that is asked for.
fn chosen<'e>(excuses: &'e Excuses, args: &'e [String]) -> Result<(Vec<&'e Judge>, Part<'e>)> {
    let (mut judges, mut part, mut args) = (Vec::new(), Part::default(), args.iter());
    while let Some(arg) = args.next() {
        let mut value = |what| args.next().map(String::as_str).with_context(|| format!("`{arg}` without {what}"));
        match (arg.as_str(), excuses.judges.iter().find(|judge| judge.name == *arg)) {
            (_, Some(judge)) => judges.push(judge),
            ("--file", _) => part.files.push(value("a file's name")?),
            ("--shard", _) => part.shard = Some(value("K/N")?),
            ("--sample", _) => {
                let count = value("a number of changes")?;
                let count: usize = count.parse().with_context(|| format!("`--sample {count}`"))?;
                part.sample = Some(Some(count).filter(|&count| count > 0).context("`--sample 0` makes no change")?);
            }
            _ => bail!("`survivors` takes names of crates, `--file NAME`, `--sample N` and `--shard K/N`, got `{arg}`"),
        }
    }
    if part.sample.is_some() && part.shard.is_some() {
        bail!("`--sample` is a shard already: give one of the two");
    }
    Ok((if judges.is_empty() { excuses.judges.iter().collect() } else { judges }, part))
}

/// cargo-mutants over the changes to one crate, of which a shard may be taken.
fn cargo_mutants(workshop: &Workshop, judge: &Judge, excuses: &Excuses, files: &[&str]) -> Command {
    let mut cargo = Command::new("sh");
    cargo.args(["-c", "ulimit -v \"$0\" && exec cargo mutants \"$@\"", &MEMORY_MAX_KIB.to_string()]);
    cargo.args(["--package", &judge.name]);
    excuses.classes.iter().for_each(|class| {
        cargo.args(["--exclude-re", &class.pattern]);
    });
    judge.without.iter().for_each(|pattern| {
        cargo.args(["--exclude", pattern]);
    });
    files.iter().for_each(|name| {
        cargo.args(["--file", name]);
    });
    cargo.current_dir(&workshop.root);
    cargo
}

/// The shard that is asked for, if one is.
fn shard(workshop: &Workshop, judge: &Judge, excuses: &Excuses, part: &Part<'_>) -> Result<Option<String>> {
    let Some(count) = part.sample else { return Ok(part.shard.map(str::to_owned)) };
    let listed =
        cargo_mutants(workshop, judge, excuses, &part.files).arg("--list").output().context("cargo mutants")?;
    if !listed.status.success() {
        bail!("cargo mutants lists nothing: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    let all = String::from_utf8_lossy(&listed.stdout).lines().count();
    println!("{}: {} of {all} changes", judge.name, all.min(all.div_ceil(all.div_ceil(count).max(1))));
    Ok(Some(format!("0/{}", all.div_ceil(count).max(1))))
}

fn put_in(workshop: &Workshop, judge: &Judge, excuses: &Excuses, part: &Part<'_>) -> Result<Tally> {
    let output = workshop.target.join(&judge.name);
    fs::create_dir_all(&output)?;
    let mut cargo = cargo_mutants(workshop, judge, excuses, &part.files);
    cargo.args(["--in-place", "--cap-lints=true", "--output"]).arg(&output);
    cargo.args(["--timeout", &judge.timeout_s.to_string(), "--build-timeout", "600"]);
    cargo.args(judge.features.iter().map(|feature| format!("--cargo-arg=--features={feature}")));
    let shard = shard(workshop, judge, excuses, part)?;
    cargo.args(shard.iter().flat_map(|shard| ["--sharding", "round-robin", "--shard", shard]));
    cargo.arg("--").args(&judge.tests);
    let status = cargo
        .env("CARGO_TARGET_DIR", workshop.target.join("target"))
        // A change is built once and tried for seconds: a quick build is worth more than quick code.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .status()
        .context("running cargo mutants")?;
    // 2 is for survivors, 3 for timeouts.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo mutants ended with {status}: {} has its logs", output.display());
    }
    let outcomes = output.join("mutants.out/outcomes.json");
    let text = fs::read_to_string(&outcomes).with_context(|| format!("reading {}", outcomes.display()))?;
    tally(&text).with_context(|| outcomes.display().to_string())
}

/// What cargo-mutants' report says.
fn tally(report: &str) -> Result<Tally> {
    let report: serde_json::Value = serde_json::from_str(report)?;
    let mut tally = Tally::default();
    for outcome in report["outcomes"].as_array().context("no `outcomes`")? {
        let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
        match outcome["summary"].as_str() {
            Some("CaughtMutant") => tally.noticed += 1,
            Some("Timeout") => tally.timed_out += 1,
            Some("Unviable") => tally.unbuildable += 1,
            Some("MissedMutant") => *tally.survived.entry(excuses::placeless(name)).or_default() += 1,
            other => bail!("`{name}` ended as {other:?}"),
        }
    }
    Ok(tally)
}

fn line(judge: &Judge, tally: &Tally, excuses: &Excuses) -> String {
    let survived: usize = tally.survived.values().sum();
    let excused: usize = tally.survived.iter().map(|(name, &n)| n.min(excuses.count(&judge.name, name))).sum();
    let judged = tally.noticed + tally.timed_out + survived;
    format!(
        "{:<14} {judged} changes judged, {} noticed, {excused} excused, {} NOT NOTICED; {} more did not build",
        judge.name,
        tally.noticed + tally.timed_out,
        survived - excused,
        tally.unbuildable,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"outcomes": [
        {"scenario": "Baseline", "summary": "Success"},
        {"scenario": {"Mutant": {"name": "lib/a/src/b.rs:1:2: replace f with ()"}}, "summary": "CaughtMutant"},
        {"scenario": {"Mutant": {"name": "lib/a/src/b.rs:3:4: replace + with * in g"}}, "summary": "MissedMutant"},
        {"scenario": {"Mutant": {"name": "lib/a/src/b.rs:5:6: replace + with * in g"}}, "summary": "MissedMutant"},
        {"scenario": {"Mutant": {"name": "lib/a/src/b.rs:7:8: replace h with ()"}}, "summary": "Timeout"},
        {"scenario": {"Mutant": {"name": "lib/a/src/b.rs:9:9: replace i with ()"}}, "summary": "Unviable"}]}"#;

    #[test]
    fn survivors_are_counted_by_name_without_their_place() -> Result<()> {
        let tally = tally(REPORT)?;
        assert_eq!((tally.noticed, tally.timed_out, tally.unbuildable), (1, 1, 1));
        assert_eq!(tally.survived, BTreeMap::from([("src/b.rs: replace + with * in g".to_owned(), 2)]));
        Ok(())
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(tally("{}").is_err());
        assert!(tally(&REPORT.replace("Unviable", "Lost")).is_err());
    }

    #[test]
    fn a_crate_that_nobody_judges_is_refused_by_name() -> Result<()> {
        let excuses = Excuses::read(&setup::root()?)?;
        let error = chosen(&excuses, &["tlbkit-z".to_owned()]).map(drop).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("`tlbkit-z`")));
        let args = ["tlbkit-x86", "--shard", "0/4"].map(str::to_owned);
        let (judges, part) = chosen(&excuses, &args)?;
        assert_eq!((judges.len(), judges[0].name.as_str(), part.shard), (1, "tlbkit-x86", Some("0/4")));
        Ok(())
    }

    #[test]
    fn a_part_is_said_by_files_and_by_a_number() -> Result<()> {
        let excuses = Excuses::read(&setup::root()?)?;
        let args = ["--file", "a.rs", "--sample", "20", "--file", "b.rs"].map(str::to_owned);
        let (judges, part) = chosen(&excuses, &args)?;
        assert_eq!(judges.len(), excuses.judges.len());
        assert_eq!(part, Part { files: vec!["a.rs", "b.rs"], sample: Some(20), shard: None });
        assert!(part.made() == Made::Part && Part::default().made() == Made::All);
        for bad in [&["--sample", "0"][..], &["--sample", "x"], &["--sample"], &["--sample", "1", "--shard", "0/2"]] {
            let bad: Vec<String> = bad.iter().map(|&arg| arg.to_owned()).collect();
            assert!(chosen(&excuses, &bad).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
