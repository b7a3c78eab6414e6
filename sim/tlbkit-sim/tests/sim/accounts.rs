//! Accounts that balance. Each run audits itself and ends with an error if two counts of one thing differ; here many
//! runs do so. And where a run's course does not depend on time, each price is raised in turn: the run must take just
//! so much longer as the price says for each of the events that somebody else counted. A cycle that is charged twice
//! with the clock moving along balances, and is found by that alone.

use tlbkit::Policy;
use tlbkit_machine::Machine;
use tlbkit_sim::observer::Cause;
use tlbkit_sim::{Run, RunOutcome};
use tlbkit_workloads::Workload;

/// Machines with tags and without, in one socket and in several, as guests and with isolation; and what runs on them.
const SETTINGS: [(&str, &str); 4] = [
    ("server-2018-48cpu", "linux-4.14"),
    ("recent-vm-fractured", "tlbkit"),
    ("skylake-desktop-pti", "linux-6.18"),
    ("server-2008-8cpu", "netbsd-5.0-batched"),
];

fn machine(name: &str) -> Machine {
    Machine::builtin(name).unwrap()
}

fn policy(name: &str) -> Policy {
    Policy::preset(name).unwrap_or_else(|| panic!("{name} is a preset"))
}

fn workload(name: &str, settings: &[&str]) -> Workload {
    let mut workload = tlbkit_workloads::by_name(name).unwrap_or_else(|| panic!("{name} is a workload"));
    settings.iter().for_each(|setting| workload.set(setting).unwrap());
    workload
}

#[test]
fn every_cycle_of_every_cpu_is_in_one_account() {
    for (machine_name, preset) in SETTINGS {
        let machine = machine(machine_name);
        for name in tlbkit_workloads::names() {
            let run =
                Run { cpus: 5, limit_cycles: Some(400_000), ..Run::new(&machine, policy(preset), workload(name, &[])) };
            let outcome = run.execute().unwrap_or_else(|error| panic!("{name} on {machine_name}: {error}"));
            for (cpu, ledger) in outcome.ledger_by_cpu.iter().enumerate() {
                assert_eq!(ledger.total(), outcome.accounted_cycles, "{name} on {machine_name}, cpu{cpu}");
            }
            // A CPU may be in an interrupt when the last task ends, and is accounted for until that is over.
            let beyond = outcome.accounted_cycles - outcome.elapsed_cycles;
            assert!(beyond < 20_000, "{name} on {machine_name}: {beyond} cycles beyond the end");
        }
    }
}

/// Nobody is woken on ten of the twelve CPUs, and with one task that ends nobody is ahead of it.
#[test]
fn what_no_cpu_worked_it_idled_until_the_last_task_ended() {
    let machine = machine("server-2018-48cpu");
    let run = Run { cpus: 12, ..Run::new(&machine, policy("linux-4.14"), workload("pingpong", &["rounds=50"])) };
    let outcome = run.execute().unwrap();
    assert_eq!(outcome.accounted_cycles, outcome.elapsed_cycles);
    assert!(outcome.ledger_by_cpu.iter().all(|ledger| ledger.total() == outcome.elapsed_cycles));
}

/// Cycles by which one event becomes dearer: so few that no time slice ends elsewhere.
const DEARER_CYCLES: u64 = 64;

/// One CPU, with a price changed.
fn one_cpu(name: &str, preset: &str, workload: Workload, change: impl FnOnce(&mut Machine)) -> RunOutcome {
    let mut machine = machine(name);
    machine.software.time_slice_cycles.value = 1e12;
    change(&mut machine);
    Run { cpus: 1, ..Run::new(&machine, policy(preset), workload) }.execute().unwrap_or_else(|error| panic!("{error}"))
}

/// What is paid for, its prices, how often that was, and on which accounts it goes.
type Price = (&'static str, fn(&mut Machine) -> Vec<&mut f64>, fn(&RunOutcome) -> u64, &'static [Cause]);

/// Raises each price in turn.
fn assert_each_is_charged_once(name: &str, preset: &str, workload: Workload, prices: &[Price]) {
    let before = one_cpu(name, preset, workload, |_| ());
    for &(what, prices, events, causes) in prices {
        let raise =
            |machine: &mut Machine| prices(machine).into_iter().for_each(|price| *price += DEARER_CYCLES as f64);
        let after = one_cpu(name, preset, workload, raise);
        assert!(events(&before) > 0, "{what}: none");
        assert_eq!(before.kernel, after.kernel, "{what}: the run took another course");
        let longer = after.elapsed_cycles - before.elapsed_cycles;
        assert_eq!(longer, events(&before) * DEARER_CYCLES, "{what}: cycles longer");
        let on_accounts = |run: &RunOutcome| causes.iter().map(|&cause| run.cycles(cause)).sum::<u64>();
        assert_eq!(on_accounts(&after) - on_accounts(&before), longer, "{what}: cycles on {causes:?}");
    }
}

#[test]
fn what_a_program_asks_of_the_kernel_is_charged_once() {
    const PAGES: u64 = 256;
    let settings = ["rounds=1".to_owned(), format!("pages={PAGES}")];
    let copies = workload("tlb-flush1", &settings.each_ref().map(String::as_str));
    assert_each_is_charged_once(
        "recent-bare",
        "linux-6.18",
        copies,
        &[
            ("a system call", |it| vec![&mut it.cycles.syscall.value], |run| run.kernel.syscalls, &[Cause::Kernel]),
            (
                "a fault",
                |it| vec![&mut it.cycles.page_fault_entry_exit.value],
                |run| run.kernel.faults,
                &[Cause::Fault],
            ),
            ("a copy", |it| vec![&mut it.cycles.copy_page.value], |_| PAGES, &[Cause::Fault]),
            ("INVLPG", |it| vec![&mut it.cycles.invlpg.value], |run| run.flushes.pages.done, &[Cause::FlushLocal]),
        ],
    );
}

/// Those that keep and those that flush.
fn cr3_writes(machine: &mut Machine) -> Vec<&mut f64> {
    vec![&mut machine.cycles.cr3_keep.as_mut().expect("a machine with tags").value, &mut machine.cycles.cr3_flush.value]
}

#[test]
fn a_switch_is_charged_once() {
    assert_each_is_charged_once(
        "recent-bare",
        "linux-6.18",
        workload("pingpong", &["rounds=20"]),
        &[
            (
                "a switch",
                |it| vec![&mut it.cycles.context_switch_base.value],
                |run| run.kernel.switches,
                &[Cause::Kernel],
            ),
            // The one that brings the CPU up comes before the first cycle.
            (
                "a CR3 write",
                |it| cr3_writes(it),
                |run| run.flushes.cr3.done - 1,
                &[Cause::Switch, Cause::Kernel, Cause::FlushLocal],
            ),
            (
                "a hit in the second level",
                |it| vec![&mut it.cycles.stlb_hit_independent.value],
                |run| run.tlb.stlb_hits,
                &[Cause::User],
            ),
        ],
    );
}

/// Instructions of a flush of pages on a CPU that is alone, in the file of our own code: its begin and its local half.
const INSTRUCTIONS_OF_A_FLUSH: u64 = 57 + 27;

#[test]
fn a_flush_is_charged_for_its_own_instructions() {
    let run = |cycles: f64| {
        let copies = workload("tlb-flush1", &["rounds=1", "pages=64"]);
        one_cpu("recent-bare", "tlbkit", copies, |it| it.software.instruction_cycles.value = cycles)
    };
    let (none, one) = (run(0.0), run(1.0));
    assert!(none.flushes.flushes > 64);
    let charged = one.cycles(Cause::FlushLocal) - none.cycles(Cause::FlushLocal);
    assert_eq!(charged, INSTRUCTIONS_OF_A_FLUSH * none.flushes.flushes);
}

/// Each fault of this program maps a page, which is given back; three tables lead to all of them.
#[test]
fn a_page_that_comes_and_goes_is_charged_once() {
    assert_each_is_charged_once(
        "recent-bare",
        "linux-6.18",
        workload("mapbench-global", &["rounds=20"]),
        &[
            ("a zeroed page", |it| vec![&mut it.cycles.zero_page.value], |run| run.kernel.faults + 3, &[Cause::Fault]),
            (
                "a page given back",
                |it| vec![&mut it.cycles.give_back_page.as_mut().expect("a figure of this machine").value],
                |run| run.kernel.faults,
                &[Cause::Kernel],
            ),
        ],
    );
}

/// Accesses to entries by which a fault maps a page where its tables are.
const ACCESSES_OF_A_FAULT: u64 = 13;

#[test]
fn an_access_to_an_entry_is_charged_once() {
    let copies = || workload("tlb-flush1", &["rounds=1", "pages=256"]);
    let raise = |it: &mut Machine| it.software.pte_access_cycles.value += DEARER_CYCLES as f64;
    let [before, after] =
        [one_cpu("recent-bare", "linux-6.18", copies(), |_| ()), one_cpu("recent-bare", "linux-6.18", copies(), raise)];
    let longer = after.cycles(Cause::Fault) - before.cycles(Cause::Fault);
    assert_eq!(longer, ACCESSES_OF_A_FAULT * before.kernel.faults * DEARER_CYCLES);
}

/// Instructions of switches in the file of our own code, where slots are kept in the order of their last use: one that
/// keeps what a slot holds, one that flushes it, and one to the space that runs.
const INSTRUCTIONS_OF_SWITCHES: [u64; 3] = [53, 145, 7];

#[test]
fn a_switch_is_charged_for_its_own_instructions() {
    for (name, settings) in [("pingpong", "rounds=20"), ("madvise1", "rounds=1")] {
        let run = |cycles: f64| {
            one_cpu("recent-bare", "tlbkit", workload(name, &[settings]), |it| {
                it.software.instruction_cycles.value = cycles;
            })
        };
        let (none, one) = (run(0.0), run(1.0));
        let (kept, flushed) = (none.flushes.switches_kept, none.flushes.switches_flushed);
        let made = [kept, flushed, none.kernel.switches - kept - flushed];
        let expected: u64 = made.iter().zip(INSTRUCTIONS_OF_SWITCHES).map(|(times, each)| times * each).sum();
        assert_eq!(one.cycles(Cause::Switch) - none.cycles(Cause::Switch), expected, "{name}");
    }
}

/// A CPU is woken while it goes to sleep, which takes very long.
#[test]
fn going_to_sleep_is_charged_once() {
    let elapsed = |cycles: f64| {
        let mut machine = machine("recent-bare");
        machine.cycles.halt_entry.value = cycles;
        let run = Run { cpus: 2, ..Run::new(&machine, policy("linux-6.18"), workload("pingpong", &["rounds=20"])) };
        let outcome = run.execute().unwrap_or_else(|error| panic!("{error}"));
        (outcome.elapsed_cycles, outcome.ipis.wakes_sent)
    };
    let (before, after) = (elapsed(1e6), elapsed(1e6 + DEARER_CYCLES as f64));
    assert!(before.1 > 0 && before.1 == after.1, "{before:?} {after:?}");
    assert_eq!(after.0 - before.0, before.1 * DEARER_CYCLES);
}
