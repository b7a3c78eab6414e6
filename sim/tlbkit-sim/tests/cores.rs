//! Tasks that are kept on cores: first threads of the cores, socket by socket, then their other threads.

use tlbkit::Policy;
use tlbkit_sim::Run;
use tlbkit_sim::machine::Machine;
use tlbkit_sim::observer::Cause;

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
