//! Where tasks run. Those that are kept on cores are on first threads of the cores, socket by socket, then on their
//! other threads. A balancer moves tasks, so that sets of CPUs hold members that the space has left: what a policy does
//! about those shows in what a flush looks at in vain.

use tlbkit::{CpuSetUpkeep, Lazy, Policy};
use tlbkit_machine::{Machine, Noise};
use tlbkit_sim::observer::Cause;
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
    assert_eq!(outcome("madvise1", Noise::On, growing).kernel.moves, 0, "each thread has a separate CPU");
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

/// The CPUs on which `threads` threads took their faults, on two sockets of two cores with two threads each.
fn faulting_cpus(threads: u64) -> Vec<usize> {
    let machine = Machine::builtin("skylake-104thread").unwrap();
    let mut workload = tlbkit_workloads::by_name("tlb-flush2").unwrap();
    for setting in [format!("threads={threads}"), "rounds=1".into(), "pages=4".into()] {
        workload.set(&setting).unwrap();
    }
    let run = Run { cpus: 8, ..Run::new(&machine, Policy::preset("linux-6.18").unwrap(), workload) };
    let ledgers = run.execute().unwrap().ledger_by_cpu;
    (0..8).filter(|&cpu| ledgers[cpu].of(Cause::Fault) > 0).collect()
}

#[test]
fn a_task_that_is_kept_on_a_core_runs_on_its_first_thread_as_long_as_there_are_cores() {
    assert_eq!(faulting_cpus(3), [0, 1, 4], "the second socket follows when the first has no core left");
    assert_eq!(faulting_cpus(4), [0, 1, 4, 5]);
    assert_eq!(faulting_cpus(5), [0, 1, 2, 4, 5], "beside the first");
}
