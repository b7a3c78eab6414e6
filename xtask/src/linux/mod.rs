//! `cargo xtask linux`: Linux with its TLB code replaced by tlbkit, beside the same Linux as it is.

mod boot;
mod build;
mod compare;
mod functions;
mod judge;

use anyhow::{Result, bail, ensure};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::setup::{Need, lack};
use boot::Boot;
use build::{Guest, Kernel};
use compare::Plugin;

/// How the guest runs: the kernel's command line, and the numbers of CPUs.
const CHECKS: &[(&str, &[u32])] = &[("", &[1, 2, 4, 8]), ("pti=on", &[2, 4]), ("nopcid pti=off", &[4])];
/// Seconds of the value check of `linux port`, and its foreign tests.
const PORT_SECONDS: u32 = 20;
const PORT_JUDGES: [&str; 2] = ["mm/mremap_dontunmap", "stress/tlb-shootdown"];

/// Runs one part, or a value check and the comparison; false if something was wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (part, rest) = words.split_first().map_or(("", &[][..]), |(part, rest)| (*part, rest));
    // The number at a place, if it is given.
    let number = |at: usize, range: RangeInclusive<u32>, unit: &str, default: u32| match rest.get(at) {
        None => Ok(default),
        Some(text) => match text.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => bail!("`linux {}`: must be {} to {} {unit}", words.join(" "), range.start(), range.end()),
        },
    };
    let parts: &[(&str, usize)] = &[
        ("", 0),
        ("port", 0),
        ("build", 0),
        ("check", 1),
        ("churn", 1),
        ("judge", 2),
        ("judge-alone", 2),
        ("load", 1),
        ("faults", 0),
        ("bochs", 0),
        ("compare", 1),
        ("functions", 1),
    ];
    let is_known = parts.iter().any(|&(name, most)| name == part && rest.len() <= most);
    ensure!(
        is_known,
        "`linux {}`: must be port, build, check [SECONDS], churn [SECONDS], judge [NAME [CPUS]], \
         judge-alone [NAME [CPUS]], load [MINUTES], faults, bochs, compare [BOOTS] or functions [WORK]",
        words.join(" ")
    );
    let wanted = rest.first().copied().unwrap_or_default();
    let seconds = if ["check", "churn"].contains(&part) { number(0, 1..=200, "seconds", 10)? } else { 10 };
    let boots = if part == "compare" { number(0, 1..=99, "boots", 7)? } else { 7 };
    let minutes = if part == "load" { number(0, 1..=200, "minutes", 1)? } else { 1 };
    let cpus = number(1, 1..=8, "CPUs", judge::CPUS)?;
    if part == "port" {
        return port(root);
    }
    if let Some(how) = missing() {
        bail!("{how}");
    }
    let guest = Guest::build(root)?;
    match part {
        "build" => {
            for kernel in [Kernel::Stock, Kernel::Tlbkit] {
                println!("linux: {}: {}", kernel.name(), build::kernel(root, kernel)?.display());
            }
            Ok(true)
        }
        "check" | "churn" => check(root, &guest, part, seconds),
        "judge" => judge::run(root, wanted, cpus),
        "judge-alone" => judge::run_alone(root, wanted, cpus),
        "load" => judge::load(root, minutes.into()),
        "faults" => faults(root, &guest),
        "bochs" => boot::on_bochs(root, &guest),
        "compare" => compare::run(root, &guest, boots),
        "functions" => functions::run(root, &guest, wanted),
        _ => Ok(check(root, &guest, "check", seconds)? & compare::run(root, &guest, boots)?),
    }
}

/// What this machine lacks and cannot get.
fn missing() -> Option<String> {
    let emulator = Need::Program(tlbkit_boot::PROGRAM, tlbkit_boot::PACKAGE);
    lack(&[emulator, Need::Target(tlbkit_boot::TARGET)]).or_else(|| lack(build::NEEDS))
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
/// which command does that; if it was run, the kernel is checked and judged.
fn port(root: &Path) -> Result<bool> {
    let object = build::object(root)?;
    Guest::compile(root)?;
    Plugin::compile(root)?;
    if !build::is_built(root, Kernel::Tlbkit) || !build::is_current(root)? {
        println!("object of {} bytes and guest programs compile", object.metadata()?.len());
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
    }
    let mut is_fine = ended.is_well();
    for wanted in PORT_JUDGES {
        is_fine &= judge::run_alone(root, wanted, judge::CPUS)?;
    }
    Ok(is_fine)
}

/// A change of one of our files in Linux, which takes something out: a name, the file, and what becomes what.
const FAULTS: &[(&str, &str, &str, &str)] = &[
    (
        "other CPUs are not told",
        "tlb_flush.c",
        "\tif (unlikely(irqs_disabled()))\n\t\ttlb_must(flush_alone(cpu, mm, span), __func__);\n",
        "\tif (true)\n\t\ttlb_not_refused(flush_alone(cpu, mm, span));\n",
    ),
    ("no page is dropped", "tlb_hardware.c", "\tinvlpg(va);\n", ""),
    ("who was lazy does not look", "tlb.c", "\tif (!this_cpu_read(cpu_tlbstate_shared.is_lazy))\n", "\tif (true)\n"),
];

/// The value checks on kernels with a fault in the port; false if one was not seen, or if the kernel without a fault
/// does not pass.
fn faults(root: &Path, guest: &Guest) -> Result<bool> {
    let tree = build::replaced(root, &build::object(root)?)?;
    let folder = build::folder(root, Kernel::Tlbkit);
    let checked = || Boot::at_once(4, "", "check 10").run(&build::compile(&tree, &folder)?, guest);
    let mut is_fine = true;
    for &(name, file, from, to) in FAULTS {
        let text = fs::read_to_string(root.join("metal/linux").join(file))?;
        let place = tree.join("arch/x86/mm").join(file);
        build::put(text.replace(from, to).as_bytes(), &place)?;
        let ended = checked();
        build::put(text.as_bytes(), &place)?;
        let ended = ended?;
        let seen = ended.lines("failure").first().map_or("no answer in time".to_owned(), |it| it["what"].to_string());
        println!("linux: faults: {name}: {}", if ended.is_well() { "NOT SEEN" } else { &seen });
        is_fine &= !ended.is_well();
    }
    let whole = checked()?;
    println!("linux: faults: none: {}", if whole.is_well() { "passed" } else { "FAILED" });
    Ok(is_fine && whole.is_well())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup;

    #[test]
    fn a_part_that_does_not_exist_is_refused_by_name() {
        let refused = |line: &str, why: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = run(Path::new("/nowhere"), &words).map(drop).map_err(|error| error.to_string());
            assert!(error.is_err_and(|text| text.contains(why)), "{line}");
        };
        refused("chek", "`linux chek`: must be port, build");
        refused("check 0", "must be 1 to 200 seconds");
        refused("judge mm 9", "must be 1 to 8 CPUs");
        refused("compare 0", "must be 1 to 99 boots");
        refused("build now", "`linux build now`");
    }

    #[test]
    fn each_fault_is_in_the_text_once() -> Result<()> {
        for &(name, file, from, _) in FAULTS {
            let text = fs::read_to_string(setup::root()?.join("metal/linux").join(file))?;
            assert_eq!(text.matches(from).count(), 1, "{name}");
        }
        Ok(())
    }
}
