//! What a run counts beside cycles: how processes end, why was flushed, and who had to wait for whom.

use tlbkit::{Accounting, LocalFlush, Policy, Reason};
use tlbkit_machine::Machine;
use tlbkit_sim::mmu;
use tlbkit_sim::observer::Cause;
use tlbkit_sim::run::ReasonCounts;
use tlbkit_sim::{FileReads, KernelSettings, Run, RunOutcome};
use tlbkit_workloads::Workload;

const JOBS: u64 = 2;
const COMMANDS: u64 = 3;

fn workload(name: &str, settings: &[&str]) -> Workload {
    let mut workload = tlbkit_workloads::by_name(name).unwrap_or_else(|| panic!("{name} is a workload"));
    settings.iter().for_each(|setting| workload.set(setting).unwrap());
    workload
}

fn policy(name: &str) -> Policy {
    Policy::preset(name).unwrap_or_else(|| panic!("{name} is a preset"))
}

fn outcome_of(machine: &str, policy: Policy, workload: Workload, cpus: usize) -> RunOutcome {
    let machine = Machine::builtin(machine).unwrap();
    // Those that build do so under NetBSD's presets; the others read no file.
    let kernel = KernelSettings { file_reads: FileReads::Windows, ..KernelSettings::default() };
    let run = Run { cpus, kernel, ..Run::new(&machine, policy, workload) };
    run.execute().unwrap_or_else(|error| panic!("{error}"))
}

/// A build: make, its shells, and the commands that each of them runs.
fn build(policy: Policy) -> RunOutcome {
    let settings = [format!("jobs={JOBS}"), format!("rounds={COMMANDS}")];
    outcome_of("server-2018-48cpu", policy, workload("buildsh", &settings.each_ref().map(String::as_str)), 2)
}

#[test]
fn what_ending_processes_send_and_flush_is_told_apart() {
    let (each_at_once, batched) = (build(policy("netbsd-5.0")).flushes, build(policy("netbsd-5.0-batched")).flushes);
    for flushes in [each_at_once, batched] {
        assert_eq!(flushes.exits, 1 + JOBS + JOBS * COMMANDS, "{flushes:?}");
        assert!(flushes.exit_interrupts < flushes.interrupts.done, "{flushes:?}");
    }
    assert!(each_at_once.exit_interrupts >= each_at_once.exits / 2, "the window is moved: {each_at_once:?}");
    assert_eq!(batched.exit_interrupts, 0, "{batched:?}");
    assert!(each_at_once.exit_full_flushes >= 2 * each_at_once.exits, "leaves, then tables: {each_at_once:?}");
    assert!(batched.exit_full_flushes < each_at_once.exit_full_flushes);
}

#[test]
fn the_calls_that_a_workload_times_take_a_part_of_its_time() {
    let timed = |name, preset| {
        let outcome = outcome_of("ivy-bridge-24core", policy(preset), workload(name, &["rounds=40"]), 4);
        (outcome.kernel.timed_cycles / outcome.score, outcome.elapsed_cycles / outcome.score)
    };
    let [(awaited, round), (retired, _)] = ["tlbkit", "latr"].map(|preset| timed("munmap1", preset));
    assert!(0 < retired && retired < awaited && 2 * awaited < round, "{retired}, {awaited} of {round}");
    assert_eq!(timed("madvise1", "tlbkit").0, 0);
}

#[test]
fn each_flush_has_a_reason_where_the_policy_counts_them() {
    let mut counting = policy("netbsd-5.0");
    counting.history.accounting = Accounting::On;
    let outcome = build(counting);
    let sum = |of: fn(&ReasonCounts) -> u64| outcome.reasons.iter().map(of).sum::<u64>();
    assert_eq!(sum(|row| row.remote), outcome.ipis.sent);
    assert_eq!(sum(|row| row.local + row.kernel), outcome.flushes.flushes);
    let row = |reason: Reason| outcome.reasons[reason as usize];
    assert!(Reason::ALL.into_iter().all(|reason| row(reason).reason == reason));
    assert_eq!((row(Reason::Fork).kernel, row(Reason::KernelRemove).local), (0, 0));
    assert!(row(Reason::Fork).local > 0 && row(Reason::KernelRemove).kernel > 0 && row(Reason::RemoveAll).local > 0);
    assert_eq!(build(policy("netbsd-5.0")).reasons, []);
}

#[test]
fn threads_that_fault_in_one_space_wait_for_its_lock_and_one_alone_does_not() {
    let waited_cycles = |cpus| {
        let workload = workload("mapbench-global", &["rounds=20"]);
        outcome_of("server-2018-48cpu", policy("tlbkit"), workload, cpus).cycles(Cause::LockSpin)
    };
    assert_eq!(waited_cycles(1), 0);
    assert_ne!(waited_cycles(4), 0);
}

/// The other thread holds one page and loses it to every request for another. No entry of the page that was named went,
/// so none of those invalidations was needed.
#[test]
fn a_fractured_tlb_loses_what_nobody_named_and_none_of_that_was_needed() {
    let on = |machine: &str| {
        let workload = workload("madvise1", &["rounds=50"]);
        outcome_of(machine, policy("linux-6.18"), workload, 2)
    };
    let (whole, fractured) = (on("recent-vm"), on("recent-vm-fractured"));
    let lost = |outcome: &RunOutcome| outcome.tlb.lost[mmu::LossCause::Fracturing as usize];
    assert_eq!(lost(&whole), 0);
    assert!(lost(&fractured) > 40 && fractured.tlb.walks > whole.tlb.walks + 40, "{:?}", fractured.tlb);
    assert_eq!(fractured.flushes.pages, whole.flushes.pages);
}

/// One thread gives pages back, seven others hold the space: the set, their presence words and their inboxes lie in
/// lines that others have written. Finding out whom to tell fetches those, whichever half of the flush comes first.
#[test]
fn telling_others_is_more_than_sending_interrupts() {
    let machine = Machine::builtin("server-2018-48cpu").unwrap();
    for local_flush in [LocalFlush::BeforeRemote, LocalFlush::WhileRemote] {
        let workload = workload("madvise1", &["threads=8", "rounds=50"]);
        let policy = Policy { local_flush, ..policy("linux-6.18") };
        let outcome = outcome_of("server-2018-48cpu", policy, workload, 8);
        let line_cycles = |cause| outcome.ledger.idle.on(cause).line_cycles + outcome.ledger.task.on(cause).line_cycles;
        let (telling, own) = (line_cycles(Cause::FlushSend), line_cycles(Cause::FlushLocal));
        let fetched = telling / outcome.flushes.flushes / machine.cache_line.same_socket_cycles.value as u64;
        assert!(fetched >= 3 && own < telling, "{local_flush:?}: {fetched} lines a flush, {own} of {telling}");
    }
}

/// A page that is about to be copied to need not be zeroed; page tables are.
#[test]
fn only_pages_that_nothing_is_copied_to_are_zeroed() {
    const PAGES: u64 = 256;
    let with_zeroing_at = |cycles: f64| {
        let mut machine = Machine::builtin("recent-bare").unwrap();
        machine.cycles.zero_page.value = cycles;
        let workload = workload("tlb-flush1", &["rounds=1", &format!("pages={PAGES}")]);
        Run { cpus: 1, ..Run::new(&machine, policy("linux-6.18"), workload) }.execute().unwrap().elapsed_cycles
    };
    let zeroed = (with_zeroing_at(1_000.0) - with_zeroing_at(0.0)) / 1_000;
    assert!((1..PAGES / 4).contains(&zeroed), "{zeroed} pages zeroed for {PAGES} copies");
}

#[test]
fn what_designs_would_send_nests_by_how_much_they_know() {
    let run = |name| outcome_of("skylake-desktop-pti", Policy::DEFAULT, workload(name, &["rounds=50"]), 4);
    let (local, given_up) = (run("mapbench-local"), run("madvise1"));
    for outcome in [&local, &given_up] {
        let (sent, bounds) = (outcome.flushes.interrupts, outcome.bounds);
        let knowing_less =
            [sent.needed, bounds.pages, bounds.regions[0], bounds.regions[1], bounds.regions[2], sent.done];
        assert!(knowing_less.is_sorted(), "{knowing_less:?}");
        assert!(bounds.regions_apart.iter().zip(bounds.regions).all(|(apart, together)| *apart <= together));
        assert!(bounds.early_cycles > 0 && bounds.early_cycles <= outcome.cycles(Cause::FlushWait));
    }
    assert_eq!((local.bounds.kept, local.bounds.regions_apart[0]), (0, 0), "each thread unmaps its own");
    assert!(local.bounds.regions[0] > 0 && local.bounds.tick_page_cycles >= local.bounds.crossing_page_cycles);
    assert_eq!(given_up.bounds.kept, given_up.flushes.interrupts.done, "the addresses stay");
}
