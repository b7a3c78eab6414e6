//! Tests that others wrote, on both kernels: what passes on stock Linux must pass on ours.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::boot::{Boot, Ended};
use super::build::{self, Kernel};
use super::compare::Form;
use super::judges::{self, Judge, Judges};

/// CPUs of the machine that is judged, where nobody says how many.
pub(super) const CPUS: u32 = 4;
/// What a boot may take beside its tests.
pub(super) const BOOT: Duration = Duration::from_secs(240);
/// What the guest says of its kernel's log, as of one more test.
const LOG: &str = "kernel's log";
/// What the guest looks for in that log.
const WARNINGS: [&str; 3] = ["WARNING:", "BUG:", "tlbkit: CPU"];
/// What selftests return that found nothing to test.
const SKIPPED: i64 = 4;
const OUT_OF_TIME: i64 = 124;

/// What one kernel did with one test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Passed,
    Skipped,
    Failed,
    OutOfTime,
    /// The guest's kernel ended before.
    NotRun,
}

impl Verdict {
    fn of(line: Option<&Value>) -> Self {
        match line.map(|line| line["status"].as_i64()) {
            Some(Some(0)) => Self::Passed,
            Some(Some(SKIPPED)) => Self::Skipped,
            Some(Some(OUT_OF_TIME)) => Self::OutOfTime,
            Some(_) => Self::Failed,
            None => Self::NotRun,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped by the test itself",
            Self::Failed => "failed",
            Self::OutOfTime => "out of time",
            Self::NotRun => "not run",
        }
    }

    const fn is_well(self) -> bool {
        matches!(self, Self::Passed | Self::Skipped)
    }
}

/// What a kernel did with a list of tests.
#[derive(Debug, Default)]
pub(super) struct Sitting {
    lines: BTreeMap<String, Value>,
    pub(super) remarks: Vec<String>,
}

impl Sitting {
    /// Takes what one boot said, of the tests of one group.
    pub(super) fn hear(&mut self, kernel: Kernel, group: &str, ended: &Ended) {
        for line in ended.lines("judged") {
            let name = line["test"].as_str().unwrap_or_default();
            let name = if name == LOG { log_of(group) } else { name.to_owned() };
            self.lines.insert(name, line);
        }
        self.remarks.extend(ended.remarks().map(str::to_owned));
        if ended.lines("end").is_empty() {
            self.remarks.push(format!("{}: the guest did not end:\n{}", kernel.name(), ended.tail()));
        }
        eprintln!("linux: judge: {}: {group} took {:.0} s", kernel.name(), ended.seconds);
    }

    pub(super) fn verdict(&self, name: &str) -> Verdict {
        Verdict::of(self.lines.get(name))
    }

    /// Where the kernel warned: the file and line, or what it says if it names none.
    pub(super) fn warnings(&self) -> BTreeSet<&str> {
        let is_warning = |line: &&String| WARNINGS.iter().any(|word| line.contains(word));
        self.remarks.iter().filter(is_warning).map(|line| place(line)).collect()
    }

    fn findings(&self, name: &str) -> u64 {
        self.lines.get(name).and_then(|line| line["findings"].as_u64()).unwrap_or(0)
    }
}

/// Runs the tests whose name begins with `wanted` on both kernels; false if one that passes on stock Linux does not on
/// ours.
pub(super) fn run(root: &Path, wanted: &str, cpus: u32, form: Form) -> Result<bool> {
    let judges = chosen(root, wanted)?;
    let built = Judges::build(root)?;
    let stock = sit(root, &built, Kernel::Stock, &judges, wanted, cpus)?;
    let ours = sit(root, &built, Kernel::Tlbkit, &judges, wanted, cpus)?;
    let can_run = |judge: &&Judge| built.missing.iter().all(|(name, _)| *name != judge.name);
    let mut names: Vec<String> = judges.iter().filter(can_run).map(|judge| judge.name.clone()).collect();
    names.extend(groups(&judges).into_iter().map(log_of));
    match form {
        Form::Json => names.iter().for_each(|name| tell_json(name, cpus, &stock, &ours)),
        Form::Table => tell_table(&names, &built.missing, wanted, &stock, &ours),
    }
    Ok(names.iter().all(|name| !is_worse(name, &stock, &ours)))
}

/// Runs the tests on our kernel alone, with `cpus` CPUs, and prints what did not pass. False if a test did not pass,
/// which may have a reason that stock Linux has as well.
pub(super) fn run_alone(root: &Path, wanted: &str, cpus: u32) -> Result<bool> {
    let (judges, built) = (chosen(root, wanted)?, Judges::build(root)?);
    let ours = sit(root, &built, Kernel::Tlbkit, &judges, wanted, cpus)?;
    ours.remarks.iter().for_each(|remark| println!("  {remark}"));
    let (mut passed, mut count) = (0, 0);
    let logs = groups(&judges).into_iter().map(log_of);
    for name in judges.iter().map(|judge| judge.name.clone()).chain(logs) {
        let verdict = ours.verdict(&name);
        count += 1;
        passed += u32::from(verdict.is_well());
        if verdict != Verdict::Passed {
            println!("linux: judge: {name}: {}, {} findings", verdict.name(), ours.findings(&name));
        }
    }
    println!("linux: judge: tlbkit alone, {cpus} CPUs: of {count} tests {passed} passed or found nothing to test");
    Ok(passed == count)
}

fn chosen(root: &Path, wanted: &str) -> Result<Vec<Judge>> {
    let judges: Vec<Judge> = judges::list(root)?.into_iter().filter(|judge| judge.name.starts_with(wanted)).collect();
    if judges.is_empty() {
        bail!("`linux judge {wanted}`: no test in metal/linux/judges has a name that begins so");
    }
    Ok(judges)
}

/// Boots once for each group, so that a kernel that ends does not take all with it.
fn sit(root: &Path, built: &Judges, kernel: Kernel, judges: &[Judge], wanted: &str, cpus: u32) -> Result<Sitting> {
    let image = build::kernel(root, kernel)?;
    let mut sitting = Sitting::default();
    for group in groups(judges) {
        let prefix = if wanted.len() > group.len() { wanted.to_owned() } else { format!("{group}/") };
        let seconds: u64 =
            judges.iter().filter(|judge| judge.name.starts_with(&prefix)).map(|judge| judge.seconds).sum();
        let boot = Boot::at_once(cpus, "", &format!("judge {prefix}")).at_length(BOOT + Duration::from_secs(seconds));
        sitting.hear(kernel, group, &boot.run(&image, &built.guest)?);
    }
    Ok(sitting)
}

/// Where a warning comes from, without the function and its offset, which are those of one build.
fn place(warning: &str) -> &str {
    let behind = warning.split_once(" at ").map(|(_, behind)| behind);
    behind.and_then(|text| text.split_whitespace().next()).unwrap_or(warning)
}

/// The name under which the kernel's log of one group is judged.
pub(super) fn log_of(group: &str) -> String {
    format!("{group}: {LOG}")
}

fn groups(judges: &[Judge]) -> Vec<&str> {
    let mut groups: Vec<&str> = judges.iter().filter_map(|judge| judge.name.split_once('/')).map(|at| at.0).collect();
    groups.dedup();
    groups
}

/// Whether a test passes on stock Linux and not on ours, or fails on both and says more on ours.
/// Warnings come and go with the time at which CPUs do, so of the kernel's log their places are compared.
fn is_worse(name: &str, stock: &Sitting, ours: &Sitting) -> bool {
    if name.ends_with(LOG) {
        let known = stock.warnings();
        return ours.verdict(name) == Verdict::NotRun || ours.warnings().iter().any(|place| !known.contains(place));
    }
    let (before, after) = (stock.verdict(name), ours.verdict(name));
    (before.is_well() && !after.is_well())
        || (after != before && !after.is_well())
        || ours.findings(name) > stock.findings(name)
}

fn tell_json(name: &str, cpus: u32, stock: &Sitting, ours: &Sitting) {
    for (kernel, sitting) in [(Kernel::Stock, stock), (Kernel::Tlbkit, ours)] {
        let (verdict, findings) = (sitting.verdict(name), sitting.findings(name));
        let row = json!({"test": name, "kernel": kernel.name(), "cpus": cpus, "passed": verdict.is_well(),
            "verdict": verdict.name(), "findings": findings});
        println!("{row}");
    }
}

fn tell_table(names: &[String], missing: &[(String, String)], wanted: &str, stock: &Sitting, ours: &Sitting) {
    for remark in
        stock.remarks.iter().map(|line| ("stock", line)).chain(ours.remarks.iter().map(|line| ("tlbkit", line)))
    {
        println!("  {}: {}", remark.0, remark.1);
    }
    for (name, why) in missing.iter().filter(|(name, _)| name.starts_with(wanted)) {
        println!("linux: judge: {name}: cannot be built here: {why}");
    }
    for name in names {
        let (before, after) = (stock.verdict(name), ours.verdict(name));
        if (before, after) != (Verdict::Passed, Verdict::Passed) {
            let worse = if is_worse(name, stock, ours) { "   WORSE" } else { "" };
            println!("linux: judge: {name}: stock: {}, tlbkit: {}{worse}", before.name(), after.name());
        }
    }
    let count = |sitting: &Sitting, verdict| names.iter().filter(|name| sitting.verdict(name) == verdict).count();
    for (kernel, sitting) in [("stock", stock), ("tlbkit", ours)] {
        let (passed, skipped) = (count(sitting, Verdict::Passed), count(sitting, Verdict::Skipped));
        println!("linux: judge: {kernel}: of {} tests {passed} passed, {skipped} found nothing to test", names.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sitting(status: i64, findings: u64) -> Sitting {
        let line = json!({"test": "mm/cow", "status": status, "findings": findings});
        Sitting { lines: BTreeMap::from([("mm/cow".to_owned(), line)]), remarks: Vec::new() }
    }

    #[test]
    fn worse_is_what_stock_can_and_ours_cannot() {
        let (well, failed) = (sitting(0, 0), sitting(1, 3));
        assert!(is_worse("mm/cow", &well, &failed) && is_worse("mm/cow", &well, &Sitting::default()));
        assert!(!is_worse("mm/cow", &failed, &well) && !is_worse("mm/cow", &failed, &failed));
        assert!(is_worse("mm/cow", &failed, &sitting(1, 4)), "one more of its parts failed");
        assert!(is_worse("mm/cow", &failed, &sitting(OUT_OF_TIME, 0)), "it failed and now hangs");
        let warned = |line: &str| Sitting {
            lines: BTreeMap::from([(LOG.to_owned(), json!({"status": 1}))]),
            remarks: vec![line.to_owned()],
        };
        let (before, same) =
            (warned("<4>WARNING: CPU: 3 at kernel/a.c:8"), warned("<4>WARNING: CPU: 0 at kernel/a.c:8"));
        assert!(!is_worse(LOG, &before, &same) && is_worse(LOG, &before, &warned("<4>WARNING: CPU: 3 at mm/b.c:1")));
        assert!(!is_worse("mm/cow", &sitting(SKIPPED, 0), &sitting(SKIPPED, 0)));
    }
}
