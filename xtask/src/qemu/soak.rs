//! The same workloads again and again, on 2, 4 and 8 CPUs, with ever new seeds, for as long as is asked for.

use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};

use super::emulator::{self, Boot, Threads};

const RUNS: &[&str] = &[
    "workload=mapbench-global set=rounds=200,check_fresh=1,pages=4",
    "workload=mapbench-pipeline set=rounds=200,check_fresh=1,pages=3",
    "workload=race set=rounds=60",
    "workload=ebizzy-m set=rounds=2,check_fresh=1",
    "workload=buildsh set=rounds=4,check_fresh=1",
    "workload=compile set=rounds=1,flushes=30,heap_pages=200,check_fresh=1,jobs=4",
    "workload=tlb-flush2 set=rounds=3,pages=64",
    "workload=memcache set=rounds=100",
    "workload=netperf set=rounds=200",
];
const POLICIES: &[&str] =
    &["tlbkit", "linux-6.18", "linux-4.20", "linux-3.4", "netbsd-5.0", "netbsd-5.0-batched", "freebsd-14", "asterinas"];
const CPUS: &[u32] = &[2, 4, 8];

/// Soaks for `minutes`; false at the first run that fails.
pub(super) fn run(root: &Path, minutes: f64) -> Result<bool> {
    let kernel = emulator::build(root)?;
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let mut runs = 0;
    while Instant::now() < end {
        let boot = nth(runs);
        let ended = boot.run(&kernel)?;
        if !ended.is_fine() {
            println!("qemu soak: run {runs}, {}: {}: {}", boot.command_line(), ended.kind(), ended.what());
            return Ok(false);
        }
        runs += 1;
    }
    println!("qemu soak: {runs} runs on 2, 4 and 8 CPUs in {minutes} minutes, all fine");
    Ok(true)
}

/// Every combination in turn; each fourth with two CPUs really at the same time, each second isolated.
fn nth(n: usize) -> Boot {
    let words = RUNS[n % RUNS.len()];
    let policy = POLICIES[n / CPUS.len() % POLICIES.len()];
    let pti = if n.is_multiple_of(2) { "off" } else { "on" };
    let threads = if n % 4 == 3 { Threads::Parallel } else { Threads::InTurns };
    let cpus = if threads == Threads::Parallel { 2 } else { CPUS[n / RUNS.len() % CPUS.len()] };
    Boot::new(cpus, threads, format!("{words} policy={policy} with=pti={pti} seed={n}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_meets_every_number_of_cpus() {
        let boots: Vec<_> = (0..RUNS.len() * 12).map(nth).collect();
        for words in RUNS {
            let seen = |cpus| boots.iter().any(|boot| boot.cpus == cpus && boot.words.starts_with(words));
            assert!(CPUS.iter().all(|&cpus| seen(cpus)), "{words}");
        }
    }
}
