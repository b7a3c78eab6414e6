//! `cargo xtask qemu`: the bare-metal test kernel in emulators, beside the simulator and with faults.

mod bochs;
mod compare;
mod monitor;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tlbkit_boot::Machine;

use crate::setup;
pub(crate) use bochs::{BOCHS, LOG, emulate};
use monitor::Effort;

/// Minutes of soaking when nobody says how many, and in a step of `cargo xtask test --all`.
const SOAK_MINUTES: f64 = 1.0;
const SHORT_SOAK_MINUTES: f64 = 0.3;

/// Runs one part, or all; false if something was wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let all = |minutes, effort| -> Result<bool> {
        let in_qemu = compare::run(root)? & faults(root)? & soak(root, minutes)?;
        Ok(in_qemu & bochs::run(root)? & monitor::run(root, effort)?)
    };
    match words.as_slice() {
        [] => all(SOAK_MINUTES, &Effort::WHOLE),
        ["--short"] => all(SHORT_SOAK_MINUTES, &Effort::SHORT),
        ["boot"] => boot(root),
        ["compare"] => compare::run(root),
        ["faults"] => faults(root),
        ["soak"] => soak(root, SOAK_MINUTES),
        ["soak", minutes] => {
            let minutes = minutes.parse().ok().filter(|&minutes: &f64| minutes > 0.0);
            soak(root, minutes.with_context(|| format!("`qemu {}`: must be minutes above 0", words.join(" ")))?)
        }
        ["bochs"] => bochs::run(root),
        ["monitor"] => monitor::run(root, &Effort::WHOLE),
        _ => bail!("`qemu {}`: must be boot, compare, faults, soak [MINUTES], bochs or monitor", words.join(" ")),
    }
}

/// How the emulator runs several CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threads {
    /// On one host thread, in turns that end where a CPU pauses, and now and then elsewhere: fast, whatever else the
    /// host does.
    InTurns,
    /// One host thread for all CPUs, and a clock that counts instructions: the same image, words and seed give the same
    /// run.
    Repeatable,
    /// On a host thread for each CPU, so really at the same time.
    Parallel,
}

impl Threads {
    /// QEMU's options.
    pub(crate) const fn accelerator(self) -> &'static [&'static str] {
        match self {
            Self::InTurns => &["-accel", "tcg,thread=single", "-cpu", "max"],
            Self::Repeatable => tlbkit_boot::REPEATABLE,
            Self::Parallel => &["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// One boot.
#[derive(Clone, Debug)]
struct Boot {
    cpus: u32,
    threads: Threads,
    /// The kernel's command line, but for the number of CPUs.
    words: String,
}

/// What came of it.
#[derive(Debug)]
struct Ended {
    /// The kernel's last line; null if it wrote none.
    last: Value,
    seconds: f64,
}

impl Ended {
    /// True if the kernel says that all held.
    fn is_fine(&self) -> bool {
        self.kind() == "result"
    }

    /// `result`, `failure`, `panic`, `usage`, or `nothing`.
    fn kind(&self) -> &str {
        self.last["kind"].as_str().unwrap_or("nothing")
    }

    /// What the kernel says of it.
    fn what(&self) -> &str {
        let nothing = if self.is_fine() { "every check held" } else { "no line came in time" };
        self.last["what"].as_str().unwrap_or(nothing)
    }
}

/// Builds the kernel of this tree and returns the image.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    Ok(tlbkit_boot::build(&root.join("metal/kernel"), &setup::target_dir(root).join("kernel"))?)
}

impl Boot {
    fn new(cpus: u32, threads: Threads, words: impl Into<String>) -> Self {
        Self { cpus, threads, words: words.into() }
    }

    /// Boots `kernel` and waits for its end.
    fn run(&self, kernel: &Path) -> Result<Ended> {
        Ok(self.run_telling(kernel)?.0)
    }

    /// Boots the kernel once, and returns every line that it wrote as well.
    fn run_telling(&self, kernel: &Path) -> Result<(Ended, Vec<Value>)> {
        let (cpus, accelerator) = (self.cpus, self.threads.accelerator());
        let ended = Machine { kernel, command_line: &self.command_line(), cpus, accelerator }.boot()?;
        let lines = ended.lines();
        Ok((Ended { last: lines.last().cloned().unwrap_or(Value::Null), seconds: ended.seconds }, lines))
    }

    fn command_line(&self) -> String {
        format!("cpus={} {}", self.cpus, self.words)
    }
}

/// One boot on four CPUs in turns, whose races are checked.
fn boot(root: &Path) -> Result<bool> {
    let boot = Boot::new(4, Threads::Repeatable, "monitor=on workload=races set=rounds=40");
    let ended = boot.run(&build(root)?)?;
    let said = if ended.is_fine() { "every value was right" } else { ended.what() };
    println!("{}: {}: {said}", boot.command_line(), ended.kind());
    Ok(ended.is_fine())
}

/// A machine that breaks one rule must be noticed, by the value checks and not by chance; and without the fault the
/// same runs must pass. It may take more than one seed: which CPU is where when is a matter of the emulator's version,
/// and of the host where CPUs run at the same time. There each seed must be likely to notice it, on a busy host too.
const FAULTS: &[(&str, Threads, &str)] = &[
    ("no-invalidation", Threads::Repeatable, "workload=tlb-flush2 set=rounds=10,pages=16"),
    ("no-invalidation", Threads::Repeatable, "workload=race set=rounds=500"),
    ("no-interrupt", Threads::Repeatable, "workload=race set=rounds=500"),
    ("no-interrupt", Threads::Parallel, "workload=race set=rounds=500"),
    ("free-before-flush", Threads::Repeatable, "workload=race set=rounds=500"),
    ("no-catch-up", Threads::Repeatable, "monitor=on isolated=on guesses=6 workload=readers set=rounds=150"),
];
const FAULT_SEEDS: u32 = 10;
const FAULT_CPUS: u32 = 4;

/// Hunts each; false if one escapes, or if there was nothing to catch and something was caught.
fn faults(root: &Path) -> Result<bool> {
    let (kernel, mut fine) = (build(root)?, true);
    for &(fault, threads, words) in FAULTS {
        let healthy = Boot::new(FAULT_CPUS, threads, words).run(&kernel)?;
        // A run that only hangs has found nothing.
        let run = |seed| -> Result<Option<String>> {
            let ended = Boot::new(FAULT_CPUS, threads, format!("{words} fault={fault} seed={seed}")).run(&kernel)?;
            Ok((ended.kind() == "failure").then(|| format!("seed {seed}: {}", ended.what())))
        };
        let broken = (1..=FAULT_SEEDS).find_map(|seed| run(seed).transpose()).transpose()?;
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

const SOAKED: &[&str] = &[
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
const SOAK_CPUS: &[u32] = &[2, 4, 8];

/// The same workloads again and again, with ever new seeds, for `minutes`; false at the first run that fails.
fn soak(root: &Path, minutes: f64) -> Result<bool> {
    let kernel = build(root)?;
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let mut runs = 0;
    while Instant::now() < end {
        let boot = soaked(runs);
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
fn soaked(n: usize) -> Boot {
    let words = SOAKED[n % SOAKED.len()];
    let policy = POLICIES[n / SOAK_CPUS.len() % POLICIES.len()];
    let pti = if n.is_multiple_of(2) { "off" } else { "on" };
    let threads = if n % 4 == 3 { Threads::Parallel } else { Threads::InTurns };
    let cpus = if threads == Threads::Parallel { 2 } else { SOAK_CPUS[n / SOAKED.len() % SOAK_CPUS.len()] };
    Boot::new(cpus, threads, format!("{words} policy={policy} with=pti={pti} seed={n}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_workload_is_soaked_on_every_number_of_cpus() {
        let boots: Vec<_> = (0..SOAKED.len() * 12).map(soaked).collect();
        for words in SOAKED {
            let seen = |cpus| boots.iter().any(|boot| boot.cpus == cpus && boot.words.starts_with(words));
            assert!(SOAK_CPUS.iter().all(|&cpus| seen(cpus)), "{words}");
        }
    }

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
