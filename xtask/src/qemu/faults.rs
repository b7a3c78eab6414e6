//! A machine that breaks one rule must be noticed, by the value checks and not by chance; and without the fault the
//! same runs must pass.

use anyhow::Result;
use std::ops::RangeInclusive;
use std::path::Path;

use super::emulator::{self, Boot, Threads};

/// A workload that must notice a fault. It may take more than one seed: which CPU is where when is a matter of the
/// emulator's version, and of the host where CPUs really run at the same time. There each seed must be likely to notice
/// it, on a busy host too.
const HUNTS: &[(&str, Threads, &str)] = &[
    ("no-invalidation", Threads::Repeatable, "workload=tlb-flush2 set=rounds=10,pages=16"),
    ("no-invalidation", Threads::Repeatable, "workload=race set=rounds=500"),
    ("no-interrupt", Threads::Repeatable, "workload=race set=rounds=500"),
    ("no-interrupt", Threads::Parallel, "workload=race set=rounds=500"),
    ("free-before-flush", Threads::Repeatable, "workload=race set=rounds=500"),
];
const SEEDS: RangeInclusive<u32> = 1..=10;
const CPUS: u32 = 4;

/// Hunts each; false if one escapes, or if there was nothing to catch and something was caught.
pub(super) fn run(root: &Path) -> Result<bool> {
    let kernel = emulator::build(root)?;
    let mut fine = true;
    for &(fault, threads, words) in HUNTS {
        let healthy = Boot::new(CPUS, threads, words).run(&kernel)?;
        let broken = hunt(&kernel, threads, &format!("{words} fault={fault}"), SEEDS)?;
        fine &= healthy.is_fine() && broken.is_some();
        let verdict = match &broken {
            _ if !healthy.is_fine() => format!("WRONG: without a fault: {}", healthy.what()),
            None => "WRONG: not noticed".to_owned(),
            Some(what) => format!("noticed: {what}"),
        };
        println!("{fault:<18} {verdict}");
    }
    println!("qemu faults: {}", if fine { "each was noticed, and nothing else" } else { "WRONG" });
    Ok(fine)
}

/// What the kernel found wrong, in the first run that found something. A run that only hangs has found nothing.
fn hunt(kernel: &Path, threads: Threads, words: &str, mut seeds: RangeInclusive<u32>) -> Result<Option<String>> {
    let run = |seed: u32| {
        let ended = Boot::new(CPUS, threads, format!("{words} seed={seed}")).run(kernel)?;
        Ok((ended.kind() == "failure").then(|| format!("seed {seed}: {}", ended.what())))
    };
    seeds.find_map(|seed| run(seed).transpose()).transpose()
}
