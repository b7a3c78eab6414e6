//! `cargo xtask linux`: Linux with its TLB code replaced by tlbkit, beside the same Linux as it is.

mod boot;
mod build;
mod compare;
mod faults;
mod guest;
mod source;

use anyhow::{Result, bail};
use std::path::Path;

use crate::outcome::StepOutcome;
use crate::setup::{self, Ready};
use boot::Boot;
use build::Kernel;
use compare::Form;
use guest::Guest;

/// Seconds of each value check when nobody says how many.
const SECONDS: u32 = 10;

/// How the guest runs: the kernel's command line, and the numbers of CPUs.
const CHECKS: &[(&str, &[u32])] = &[("", &[1, 2, 4, 8]), ("pti=on", &[2, 4]), ("nopcid pti=off", &[4])];

/// Runs one part, or all; false if something was wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let form = if arguments.iter().any(|word| word == "--json") { Form::Json } else { Form::Table };
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|&word| word != "--json").collect();
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
        Part::Compare => compare::run(root, &guest, form)?,
        Part::All => check(root, &guest, "check", SECONDS)? & compare::run(root, &guest, form)?,
    })
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    All,
    Build,
    Check(u32),
    Churn(u32),
    Faults,
    Compare,
}

impl Part {
    fn of(words: &[&str]) -> Result<Self> {
        let seconds = |text: &str| match text.parse() {
            Ok(seconds) if (1..=200).contains(&seconds) => Ok(seconds),
            _ => bail!("`linux {}`: must be 1 to 200 seconds", words.join(" ")),
        };
        Ok(match words {
            [] => Self::All,
            ["build"] => Self::Build,
            ["check"] => Self::Check(SECONDS),
            ["check", text] => Self::Check(seconds(text)?),
            ["churn"] => Self::Churn(SECONDS),
            ["churn", text] => Self::Churn(seconds(text)?),
            ["faults"] => Self::Faults,
            ["compare"] => Self::Compare,
            _ => {
                bail!("`linux {}`: must be build, check [SECONDS], churn [SECONDS], faults or compare", words.join(" "))
            }
        })
    }
}

/// What this machine lacks and cannot get.
fn missing() -> Option<String> {
    let emulator = match setup::program(&[tlbkit_boot::PROGRAM], tlbkit_boot::PACKAGE) {
        Ready::No(how) => Some(how),
        Ready::Yes(_) => None,
    };
    let target = match setup::target(tlbkit_boot::TARGET) {
        Ready::No(how) => Some(how),
        Ready::Yes(()) => None,
    };
    emulator.or(target).or_else(source::missing)
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

/// A step of `cargo xtask test`: the files of the port are as the kernel's build wants them. Building two kernels takes
/// longer than a step may, so it says which command does that.
pub(crate) fn step(root: &Path) -> Result<StepOutcome> {
    if let Ready::No(how) = setup::target(tlbkit_boot::TARGET) {
        return Ok(StepOutcome::Skipped(how));
    }
    if let Ready::No(how) = setup::program(&["gcc"], "gcc") {
        return Ok(StepOutcome::Skipped(how));
    }
    let object = build::object(root)?;
    guest::Guest::compile(root)?;
    let note = format!("object of {} bytes, guest programs; kernels: cargo xtask linux", object.metadata()?.len());
    if !build::is_built(root, Kernel::Tlbkit) || !source::is_current(root)? {
        return Ok(StepOutcome::Ok(note));
    }
    // Whoever has built the kernel once has it checked each time: what has changed takes a minute.
    if let Some(how) = missing() {
        return Ok(StepOutcome::Skipped(how));
    }
    let is_fine = step_check(root)?;
    Ok(if is_fine { StepOutcome::Ok("one boot, checked".to_owned()) } else { StepOutcome::Failed("see above".into()) })
}

fn step_check(root: &Path) -> Result<bool> {
    let (image, guest) = (build::kernel(root, Kernel::Tlbkit)?, Guest::build(root)?);
    let ended = Boot::at_once(4, "", "churn 60").run(&image, &guest)?;
    if !ended.is_well() {
        println!("{}", ended.tail());
    }
    Ok(ended.is_well())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_does_not_exist_is_refused_by_name() {
        assert!(Part::of(&["chek"]).is_err_and(|error| error.to_string().contains("`linux chek`")));
        assert!(Part::of(&["check", "0"]).is_err_and(|error| error.to_string().contains("1 to 200 seconds")));
        assert!(Part::of(&["churn", "7"]).is_ok_and(|part| part == Part::Churn(7)));
    }
}
