//! `cargo xtask qemu`: the bare-metal test kernel in emulators, beside the simulator and with faults.

pub(crate) mod bochs;
mod compare;
pub(crate) mod emulator;
mod faults;
mod image;
mod monitor;
mod soak;

use anyhow::{Result, bail};
use std::path::Path;

use emulator::{Boot, Threads};
use monitor::Effort;

/// Minutes of soaking when nobody says how many.
const SOAK_MINUTES: f64 = 1.0;
/// Minutes of soaking in a step of `cargo xtask test`.
const STEP_SOAK_MINUTES: f64 = 0.3;

/// Runs one part, or all; false if something was wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            let in_qemu = compare::run(root)? & faults::run(root)? & soak::run(root, SOAK_MINUTES)?;
            Ok(in_qemu & bochs::run(root)? & monitor::run(root, &Effort::WHOLE)?)
        }
        ["--short"] => short(root),
        ["boot"] => boot(root),
        ["compare"] => compare::run(root),
        ["faults"] => faults::run(root),
        ["soak"] => soak::run(root, SOAK_MINUTES),
        ["soak", minutes] => match minutes.parse() {
            Ok(minutes) if minutes > 0.0 => soak::run(root, minutes),
            _ => bail!("`qemu soak {minutes}`: must be a number of minutes above 0"),
        },
        ["bochs"] => bochs::run(root),
        ["monitor"] => monitor::run(root, &Effort::WHOLE),
        _ => bail!("`qemu {}`: must be compare, faults, soak [MINUTES], bochs or monitor", words.join(" ")),
    }
}

/// All of it, shorter: a step of `cargo xtask test --all`.
fn short(root: &Path) -> Result<bool> {
    let in_qemu = compare::run(root)? & faults::run(root)? & soak::run(root, STEP_SOAK_MINUTES)?;
    Ok(in_qemu & bochs::run(root)? & monitor::run(root, &Effort::STEP)?)
}

/// One boot on four CPUs in turns, whose races are checked: a step of `cargo xtask test`.
fn boot(root: &Path) -> Result<bool> {
    let kernel = emulator::build(root)?;
    let boot = Boot::new(4, Threads::Repeatable, "monitor=on workload=races set=rounds=40");
    let ended = boot.run(&kernel)?;
    println!("{}: {}: {}", boot.command_line(), ended.kind(), ended.what());
    Ok(ended.is_fine())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup;
    use std::fs;

    #[test]
    fn the_table_of_words_has_each_that_the_kernel_knows_and_no_other() -> Result<()> {
        let kernel = setup::root()?.join("metal/kernel");
        let source = fs::read_to_string(kernel.join("src/command_line.rs"))?;
        let known = source.split("const KEYS: &str = \"").nth(1).and_then(|rest| rest.split('"').next());
        let mut known: Vec<_> =
            known.unwrap_or_default().split(',').map(|key| key.trim_matches(['\\', '\n', ' '])).collect();
        let readme = fs::read_to_string(kernel.join("README.md"))?;
        let cells = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
        let mut told: Vec<_> = cells.flat_map(|cell| cell.split(", ").map(|key| key.trim_matches('`'))).collect();
        told.sort_unstable();
        known.sort_unstable();
        assert_eq!(told, known);
        Ok(())
    }
}
