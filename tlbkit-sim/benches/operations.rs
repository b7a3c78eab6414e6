//! Host speed of whole machines: simulated operations a second by CPUs, and page touches a second.
//!
//! An operation is a system call or a page fault. Plain output, a line a size.

use std::time::Instant;

use tlbkit::Policy;
use tlbkit_sim::machine::Machine;
use tlbkit_sim::{Outcome, Run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::builtin("server-2018-48cpu")?;
    let policy = Policy::preset("linux-6.18").ok_or("no such preset")?;
    for (cpus, limit_cycles) in [(1, 400_000_000), (8, 40_000_000), (64, 8_000_000), (512, 2_000_000), (4096, 400_000)] {
        let mut workload = tlbkit_workloads::by_name("lat-ctx").ok_or("no such workload")?;
        workload.set(&format!("processes={}", (2 * cpus).min(1024))).map_err(|error| error.to_string())?;
        let run = Run { cpus, limit_cycles: Some(limit_cycles), ..Run::new(&machine, policy, workload) };
        let (outcome, seconds) = timed(&run)?;
        let operations = outcome.kernel.syscalls + outcome.kernel.faults;
        println!("{cpus:5} cpus: {operations:9} operations, {:12.0} a second", operations as f64 / seconds);
    }
    let mut workload = tlbkit_workloads::by_name("pingpong").ok_or("no such workload")?;
    for setting in ["pages=512", "rounds=20000"] {
        workload.set(setting).map_err(|error| error.to_string())?;
    }
    let (outcome, seconds) = timed(&Run { cpus: 1, ..Run::new(&machine, policy, workload) })?;
    println!("touches: {:.1} million a second", outcome.tlb.accesses as f64 / seconds / 1e6);
    Ok(())
}

fn timed(run: &Run<'_>) -> Result<(Outcome, f64), tlbkit_sim::RunError> {
    let start = Instant::now();
    let outcome = run.execute()?;
    Ok((outcome, start.elapsed().as_secs_f64()))
}
