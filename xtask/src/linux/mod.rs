//! `cargo xtask linux`: Linux with its TLB code replaced by tlbkit, beside the same Linux as it is.

mod bochs;
mod boot;
mod build;
mod compare;
mod executed;
mod faults;
mod functions;
mod guest;
mod judge;
mod judges;
mod load;
mod row;
mod sizes;
mod source;
mod spread;
mod symbols;
mod waits;

use anyhow::{Result, bail};
use std::path::Path;

use crate::setup::{Need, lack};
use boot::Boot;
use build::Kernel;
use compare::Form;
use guest::Guest;

/// Seconds of each value check when nobody says how many.
const SECONDS: u32 = 10;

/// Boots of each kernel that are compared when nobody says how many.
const RUNS: u32 = 7;

/// Seconds of the value check of `linux port`, and its foreign tests.
const PORT_SECONDS: u32 = 20;
const PORT_JUDGES: [&str; 2] = ["mm/mremap_dontunmap", "stress/tlb-shootdown"];

/// How the guest runs: the kernel's command line, and the numbers of CPUs.
const CHECKS: &[(&str, &[u32])] = &[("", &[1, 2, 4, 8]), ("pti=on", &[2, 4]), ("nopcid pti=off", &[4])];

/// Runs one part, or all; false if something was wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let form = if arguments.iter().any(|word| word == "--json") { Form::Json } else { Form::Table };
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|&word| word != "--json").collect();
    if words == ["port"] {
        return port(root);
    }
    let part = Part::of(&words)?;
    if let Some(how) = missing() {
        bail!("{how}");
    }
    let guest = Guest::build(root)?;
    Ok(match part {
        Part::Build => built(root, &[Kernel::Stock, Kernel::Tlbkit])?,
        Part::Check(seconds) => check(root, &guest, "check", seconds)?,
        Part::Churn(seconds) => check(root, &guest, "churn", seconds)?,
        Part::Faults => faults::run(root, &guest)?,
        Part::Judge(wanted, cpus) => judge::run(root, wanted, cpus, form)?,
        Part::JudgeAlone(wanted, cpus) => judge::run_alone(root, wanted, cpus)?,
        Part::Functions(work) => functions::run(root, &guest, work, form)?,
        Part::Load(minutes) => load::run(root, minutes)?,
        Part::Bochs => bochs::run(root, &guest)?,
        Part::Compare(runs) => compare::run(root, &guest, runs, form)?,
        Part::All => check(root, &guest, "check", SECONDS)? & compare::run(root, &guest, RUNS, form)?,
    })
}

const PARTS: &str = "port, build, check [SECONDS], churn [SECONDS], judge [NAME [CPUS]], judge-alone [NAME [CPUS]], \
                     load [MINUTES], faults, bochs, compare [BOOTS] or functions [WORK]";

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part<'a> {
    All,
    Build,
    Check(u32),
    Churn(u32),
    Faults,
    /// The beginning of the names of the tests that are wanted, and CPUs.
    Judge(&'a str, u32),
    /// The tests on our kernel alone: the beginning of their names, and CPUs.
    JudgeAlone(&'a str, u32),
    /// Minutes.
    Load(u64),
    Bochs,
    /// Boots of each kernel.
    Compare(u32),
    /// A part of the names of the rows, `name/pages/threads`; all of them if empty.
    Functions(&'a str),
}

impl<'a> Part<'a> {
    fn of(words: &[&'a str]) -> Result<Self> {
        let seconds = |text: &str| match text.parse() {
            Ok(seconds) if (1..=200).contains(&seconds) => Ok(seconds),
            _ => bail!("`linux {}`: must be 1 to 200 seconds", words.join(" ")),
        };
        let minutes = |text: &str| match text.parse() {
            Ok(minutes) if (1..=200).contains(&minutes) => Ok(minutes),
            _ => bail!("`linux {}`: must be 1 to 200 minutes", words.join(" ")),
        };
        let boots = |text: &str| match text.parse() {
            Ok(boots) if (1..=99).contains(&boots) => Ok(boots),
            _ => bail!("`linux {}`: must be 1 to 99 boots", words.join(" ")),
        };
        let first = |rest: &[&'a str]| rest.first().copied().unwrap_or("");
        let cpus = |rest: &[&str]| match rest.get(1).map_or(Ok(judge::CPUS), |text| text.parse()) {
            Ok(cpus) if (1..=8).contains(&cpus) => Ok(cpus),
            _ => bail!("`linux {}`: must be 1 to 8 CPUs", words.join(" ")),
        };
        Ok(match words {
            [] => Self::All,
            ["build"] => Self::Build,
            ["check"] => Self::Check(SECONDS),
            ["check", text] => Self::Check(seconds(text)?),
            ["churn"] => Self::Churn(SECONDS),
            ["churn", text] => Self::Churn(seconds(text)?),
            ["judge", rest @ ..] if rest.len() < 3 => Self::Judge(first(rest), cpus(rest)?),
            ["judge-alone", rest @ ..] if rest.len() < 3 => Self::JudgeAlone(first(rest), cpus(rest)?),
            ["faults"] => Self::Faults,
            ["load"] => Self::Load(1),
            ["load", text] => Self::Load(minutes(text)?),
            ["bochs"] => Self::Bochs,
            ["compare"] => Self::Compare(RUNS),
            ["compare", text] => Self::Compare(boots(text)?),
            ["functions"] => Self::Functions(""),
            ["functions", work] => Self::Functions(work),
            _ => {
                bail!("`linux {}`: must be {PARTS}", words.join(" "));
            }
        })
    }
}

/// What this machine lacks and cannot get.
fn missing() -> Option<String> {
    let emulator = Need::Program(tlbkit_boot::PROGRAM, tlbkit_boot::PACKAGE);
    lack(&[emulator, Need::Target(tlbkit_boot::TARGET)]).or_else(source::missing)
}

/// Builds kernels and tells where they are.
fn built(root: &Path, kernels: &[Kernel]) -> Result<bool> {
    for &kernel in kernels {
        println!("linux: {}: {}", kernel.name(), build::kernel(root, kernel)?.display());
    }
    Ok(true)
}

/// The value checks on Linux with tlbkit, at each number of CPUs and with each command line.
fn check(root: &Path, guest: &Guest, verb: &str, seconds: u32) -> Result<bool> {
    let image = build::kernel(root, Kernel::Tlbkit)?;
    let mut is_fine = true;
    for &(words, all_cpus) in CHECKS {
        for &cpus in all_cpus {
            let ended = Boot::at_once(cpus, words, &format!("{verb} {seconds}")).run(&image, guest)?;
            let (verdict, took) = (if ended.is_well() { "passed" } else { "FAILED" }, ended.seconds);
            println!("linux: {verb}: {cpus} CPUs, `{words}`: {verdict} after {took:.0} s");
            if !ended.is_well() {
                println!("{}", ended.tail());
                is_fine = false;
            }
        }
    }
    Ok(is_fine)
}

/// The files of the port are as the kernel's build wants them. Building a kernel takes longer than this may, so it says
/// which command does that; whoever did it has the kernel checked and judged.
fn port(root: &Path) -> Result<bool> {
    let object = build::object(root)?;
    guest::Guest::compile(root)?;
    waits::Plugin::compile(root)?;
    if !build::is_built(root, Kernel::Tlbkit) || !source::is_current(root)? {
        let bytes = object.metadata()?.len();
        println!("object of {bytes} bytes and guest programs compile");
        println!("skipped: no boot: the kernel is not built, or not anew: cargo xtask linux build");
        return Ok(true);
    }
    if let Some(how) = missing() {
        println!("skipped: {how}");
        return Ok(true);
    }
    let (image, guest) = (build::kernel(root, Kernel::Tlbkit)?, Guest::build(root)?);
    let ended = Boot::at_once(4, "", &format!("churn {PORT_SECONDS}")).run(&image, &guest)?;
    if !ended.is_well() {
        println!("{}", ended.tail());
        return Ok(false);
    }
    let mut is_fine = true;
    for wanted in PORT_JUDGES {
        is_fine &= judge::run_alone(root, wanted, judge::CPUS)?;
    }
    Ok(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_does_not_exist_is_refused_by_name() {
        assert!(Part::of(&["chek"]).is_err_and(|error| error.to_string().contains("`linux chek`")));
        assert!(Part::of(&["check", "0"]).is_err_and(|error| error.to_string().contains("1 to 200 seconds")));
        assert!(Part::of(&["churn", "7"]).is_ok_and(|part| part == Part::Churn(7)));
        assert!(Part::of(&["judge", "mm", "9"]).is_err_and(|error| error.to_string().contains("1 to 8 CPUs")));
        assert!(Part::of(&["judge-alone", "mm", "2"]).is_ok_and(|part| part == Part::JudgeAlone("mm", 2)));
        assert!(Part::of(&["compare", "0"]).is_err_and(|error| error.to_string().contains("1 to 99 boots")));
        assert!(Part::of(&["compare", "3"]).is_ok_and(|part| part == Part::Compare(3)));
        assert!(Part::of(&["judge"]).is_ok_and(|part| part == Part::Judge("", judge::CPUS)));
    }
}
