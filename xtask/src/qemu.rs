//! `cargo xtask qemu`: the bare-metal test kernel in emulators, beside the simulator and with faults.

mod bochs;
mod compare;
mod emulator;
mod faults;
mod image;
mod monitor;
mod soak;

use anyhow::{Result, bail};
use std::path::Path;

use crate::setup::{self, Ready};
use crate::steps::Outcome;

/// Minutes of soaking when nobody says how many.
const SOAK_MINUTES: f64 = 1.0;
/// The same as one step of many.
const STEP_SOAK_MINUTES: f64 = 0.3;

/// Runs one part, or all; false if something was wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            let in_qemu = compare::run(root)? & faults::run(root)? & soak::run(root, SOAK_MINUTES)?;
            Ok(in_qemu & bochs::run(root)? & monitor::run(root)?)
        }
        ["compare"] => compare::run(root),
        ["faults"] => faults::run(root),
        ["soak"] => soak::run(root, SOAK_MINUTES),
        ["soak", minutes] => match minutes.parse() {
            Ok(minutes) if minutes > 0.0 => soak::run(root, minutes),
            _ => bail!("`qemu soak {minutes}`: must be a number of minutes above 0"),
        },
        ["bochs"] => bochs::run(root),
        ["monitor"] => monitor::run(root),
        _ => bail!("`qemu {}`: must be compare, faults, soak [MINUTES], bochs or monitor", words.join(" ")),
    }
}

/// All of it as a step of `cargo xtask test`.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    if let Ready::No(how) = setup::target(emulator::TARGET) {
        return Ok(Outcome::Skipped(how));
    }
    if let Ready::No(how) = emulator::program() {
        return Ok(Outcome::Skipped(how));
    }
    let in_qemu = compare::run(root)? & faults::run(root)? & soak::run(root, STEP_SOAK_MINUTES)?;
    // The monitor is a command of its own: one of its bugs is not found by every build.
    let is_fine = in_qemu & bochs::run(root)?;
    Ok(if is_fine { Outcome::Ok(String::new()) } else { Outcome::Failed("see above".to_owned()) })
}
