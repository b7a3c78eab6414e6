//! A balancer moves tasks, so that sets of CPUs hold members that the space has left: what a policy does about those
//! shows in what a flush looks at in vain.

use tlbkit::{CpuSetUpkeep, Lazy, Policy};
use tlbkit_sim::machine::{Machine, Noise};
use tlbkit_sim::{Run, RunOutcome};

const SECONDS: f64 = 2.0;

/// Two threads that flush now and then, for so long that a balancer comes by.
fn outcome(workload: &str, noise: Noise, policy: Policy) -> RunOutcome {
    let machine = Machine::builtin("haswell-4770").unwrap();
    let mut workload = tlbkit_workloads::by_name(workload).unwrap();
    workload.set("threads=2").unwrap();
    // Long records, each with one flush, so that two seconds are short for the host.
    let _ = workload.set("record_cycles=3000000").or_else(|_| workload.set("work_cycles=3000000"));
    let limit_cycles = Some((SECONDS * machine.system.frequency_mhz.value * 1e6) as u64);
    Run { cpus: 8, limit_cycles, noise, ..Run::new(&machine, policy, workload) }.execute().unwrap()
}

fn policy(cpu_set: CpuSetUpkeep) -> Policy {
    Policy { cpu_set, lazy: Lazy::SkipUnlessTablesFreed, ..Policy::preset("linux-6.18").unwrap() }
}

#[test]
fn busy_tasks_move_at_the_rate_of_the_file_and_pinned_ones_never() {
    let growing = policy(CpuSetUpkeep::Trimmed { every: 0 });
    let moves = outcome("ebizzy-arena-old", Noise::On, growing).kernel.moves as f64;
    let expected = 2.0 * SECONDS * 10.0;
    assert!((moves - expected).abs() < 3.0 * expected.sqrt(), "{moves} moves, {expected} expected");
    assert_eq!(outcome("ebizzy-arena-old", Noise::Off, growing).kernel.moves, 0, "without noise");
    assert_eq!(outcome("madvise1", Noise::On, growing).kernel.moves, 0, "each thread has a CPU of its own");
}

#[test]
fn a_policy_that_trims_its_sets_looks_at_fewer_cpus_in_vain() {
    let left_alone = |noise, every| {
        let outcome = outcome("ebizzy-arena-old", noise, policy(CpuSetUpkeep::Trimmed { every }));
        outcome.flushes.left_alone as f64 / outcome.flushes.flushes as f64
    };
    let [still, growing, trimmed] = [(Noise::Off, 0), (Noise::On, 0), (Noise::On, 64)].map(|(n, e)| left_alone(n, e));
    println!("left alone by a flush: {still:.2} without moves, {growing:.2} with them, {trimmed:.2} if trimmed");
    assert!(growing > 3.0, "{growing}: both threads have been nearly everywhere");
    assert!(still < 1.5 && trimmed < growing / 2.0, "{still}, {trimmed}");
}
