//! Host speed of whole machines: simulated operations a second by CPUs, and page touches a second.
//!
//! An operation is a system call, a page fault or an interrupt answered. Every size does about as many of them, all on
//! all of its CPUs. The time is the processor's where the host tells it, so that other work on the host does not count.
//! Arguments choose workloads by name and sizes by their numbers of CPUs; without any, everything runs.

use std::time::{Duration, Instant};

use tlbkit::Policy;
use tlbkit_sim::machine::Machine;
use tlbkit_sim::{Outcome, Run};
use tlbkit_workloads::Workload;

const CPUS: [usize; 5] = [1, 8, 64, 512, 4096];

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let machine = Machine::builtin("server-2018-48cpu")?;
    let policy = Policy::preset("linux-6.18").ok_or("no such preset")?;
    for cpus in CPUS {
        let rounds = format!("rounds={}", 262_144 / cpus);
        report("netperf", &Run { cpus, ..Run::new(&machine, policy, workload("netperf", &[&rounds])?) })?;
    }
    // Without windows of the kernel's own space, whose flushes interrupt every CPU of the machine.
    for cpus in CPUS {
        let rounds = format!("rounds={}", (2048 / cpus).max(1));
        report("buildsh", &Run { cpus, ..Run::new(&machine, policy, workload("buildsh", &["files=0", &rounds])?) })?;
    }
    for (cpus, limit_cycles) in CPUS.into_iter().zip([400_000_000, 40_000_000, 2_000_000, 1_000_000, 8_000_000]) {
        let workload = workload("tlb-flush2", &[&format!("threads={cpus}")])?;
        let limit_cycles = Some(limit_cycles);
        report("tlb-flush2", &Run { cpus, limit_cycles, ..Run::new(&machine, policy, workload) })?;
    }
    // Touches that hit the second level, twice, and the first.
    for (name, settings) in [
        ("pingpong", &["pages=512", "rounds=20000", "own_pages=5"]),
        ("ebizzy-modern", &["threads=1", "rounds=50000", "chunks=1"]),
        ("lat-ctx", &["processes=1", "kib=192", "rounds=200000"]),
    ] {
        if !is_wanted(name, 1) {
            continue;
        }
        let (outcome, seconds) = timed(&Run { cpus: 1, ..Run::new(&machine, policy, workload(name, settings)?) })?;
        let touches = outcome.tlb.accesses as f64;
        println!("{name:10} 1 cpu: {:.1} million touches a second", touches / seconds / 1e6);
    }
    Ok(())
}

fn workload(name: &str, settings: &[&str]) -> Result<Workload, Failure> {
    let mut workload = tlbkit_workloads::by_name(name).ok_or("no such workload")?;
    for setting in settings {
        workload.set(setting).map_err(|error| error.to_string())?;
    }
    Ok(workload)
}

/// True if the arguments name the workload and the size, or name nothing of the kind.
fn is_wanted(name: &str, cpus: usize) -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (sizes, names): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.parse::<usize>().is_ok());
    (names.is_empty() || names.iter().any(|wanted| *wanted == name))
        && (sizes.is_empty() || sizes.iter().any(|wanted| **wanted == cpus.to_string()))
}

fn report(name: &str, run: &Run<'_>) -> Result<(), Failure> {
    if !is_wanted(name, run.cpus) {
        return Ok(());
    }
    let (outcome, seconds) = timed(run)?;
    let operations = (outcome.kernel.syscalls + outcome.kernel.faults + outcome.ipis.received) as f64;
    let (rate, nanos) = (operations / seconds, seconds * 1e9 / operations);
    println!("{name:10} {:5} cpus: {operations:9} operations, {rate:9.0} a second, {nanos:6.0} ns each", run.cpus);
    Ok(())
}

fn timed(run: &Run<'_>) -> Result<(Outcome, f64), tlbkit_sim::RunError> {
    let (start, wall) = (processor_time(), Instant::now());
    let outcome = run.execute()?;
    let elapsed = match (start, processor_time()) {
        (Some(start), Some(end)) => end - start,
        _ => wall.elapsed(),
    };
    Ok((outcome, elapsed.as_secs_f64()))
}

/// Nanoseconds that this thread has run, as Linux gives them.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
