//! How often a sender writes the interrupt command of its APIC: Linux once for a group of CPUs, our own code for each.

use tlbkit::Policy;
use tlbkit_machine::Machine;
use tlbkit_sim::Code;
use tlbkit_sim::{KernelSettings, Run, RunOutcome};

/// So many threads on so many CPUs: others are told, and not all others, so that no command names everybody.
fn threads_on(threads: u32, cpus: usize, machine: &str, code: &str) -> RunOutcome {
    let machine = Machine::builtin(machine).unwrap();
    let mut workload = tlbkit_workloads::by_name("madvise1").unwrap();
    [format!("threads={threads}"), "rounds=200".into()].iter().for_each(|setting| workload.set(setting).unwrap());
    let policy = Policy::preset("linux-6.18").unwrap();
    let kernel = KernelSettings { code: Code::of_preset(code), ..KernelSettings::default() };
    Run { cpus, kernel, ..Run::new(&machine, policy, workload) }.execute().unwrap()
}

fn outcome(machine: &str, code: &str) -> RunOutcome {
    threads_on(4, 8, machine, code)
}

/// Commands that carried requests, and requests.
fn commands(outcome: &RunOutcome) -> (u64, u64) {
    (outcome.ipis.commands - outcome.ipis.wakes_sent, outcome.ipis.sent)
}

#[test]
fn linux_writes_once_for_a_group_where_the_machine_can() {
    for (machine, code, writes_for_each) in
        [("haswell-4770", "linux-6.18", false), ("haswell-4770", "tlbkit", true), ("recent-vm", "linux-6.18", true)]
    {
        let (commands, requests) = commands(&outcome(machine, code));
        assert!(requests >= 3 * 200, "{machine}, {code}: {requests}");
        if writes_for_each {
            assert_eq!(commands, requests, "{machine}, {code}");
        } else {
            assert!(commands * 5 < requests * 2, "{machine}, {code}: {commands} commands for {requests} requests");
        }
    }
}

#[test]
fn only_an_xapic_makes_a_sender_wait() {
    let waits = ["haswell-4770", "recent-bare"].map(|machine| outcome(machine, "tlbkit").ipis.pending_cycles);
    assert!(waits[0] > 0 && waits[1] == 0, "{waits:?}");
}

/// The threads run on the first nine cores of a socket, whose APIC ids are even: eight of them are in one cluster.
#[test]
fn a_cluster_is_made_of_neighbouring_cores_with_both_of_their_threads() {
    let (commands, requests) = commands(&threads_on(9, 48, "server-2018-48cpu", "linux-6.18"));
    let requests_a_command = requests as f64 / commands as f64;
    assert!((3.5..=4.5).contains(&requests_a_command), "{commands} commands for {requests} requests");
}
