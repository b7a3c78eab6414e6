//! Frames whose flush is deferred: a CPU that has passed since is not asked when they are needed, the others are.

use tlbkit::sync::Ordering;

use crate::batch::find_it_gone;
use crate::cpu::Cpu;
use crate::explore::{all_run_one_space, check, check_end};
use crate::machine::Setup;
use crate::retire::use_and_pass;

fn setup() -> Setup {
    Setup { preemptions: 2, ..Setup::default() }
}

/// Takes the page of each space, and needs the frames at once.
fn defer(cpu: &Cpu, tables: &[usize]) {
    let deferred = cpu.take_and_defer(tables);
    cpu.reuse(deferred);
}

/// The other CPU uses the page and passes, before the batch is closed, after it, or not at all.
#[test]
fn inv_6_what_is_deferred_meets_a_cpu_that_passes() {
    check(setup(), all_run_one_space, [|cpu| defer(cpu, &[1]), use_and_pass]);
}

/// A CPU passes in one space, and goes to the other one of the batch.
#[test]
fn inv_2_what_is_deferred_of_two_spaces_meets_a_switch_and_a_pass() {
    check(
        Setup { spaces: 2, ..setup() },
        |[_, cpu]| cpu.switch(2),
        [
            |cpu| defer(cpu, &[1, 2]),
            |cpu| {
                cpu.access(0);
                cpu.pass();
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// A CPU that passes while it idles has flushed nothing, and does so when it comes back.
#[test]
fn inv_5_what_is_deferred_meets_a_lazy_cpu_that_passes() {
    check(
        setup(),
        all_run_one_space,
        [
            |cpu| defer(cpu, &[1]),
            |cpu| {
                cpu.access(0);
                cpu.lazy();
                cpu.pass();
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// One flush serves two batches, between which the other CPU may pass: what it has passed for the first is not enough
/// for the second.
#[test]
fn inv_6_what_was_deferred_twice_and_folded_meets_a_cpu_that_passes_in_between() {
    check(
        Setup { spaces: 2, ..setup() },
        all_run_one_space,
        [
            |cpu| {
                let mut deferred = cpu.take_and_defer(&[2]);
                cpu.fold(&mut deferred, &[1]);
                cpu.reuse(deferred);
            },
            use_and_pass,
        ],
    );
}

/// What either batch has owed is owed until the flush.
#[test]
fn c_75_an_entry_of_a_batch_that_was_folded_is_flushed_by_who_finds_it_gone() {
    check(
        Setup { spaces: 2, ..setup() },
        all_run_one_space,
        [
            |cpu| {
                let mut deferred = cpu.take_and_defer(&[1]);
                cpu.fold(&mut deferred, &[2]);
                // Release: the lock of the page table is dropped.
                cpu.machine.unlocked.store(1, Ordering::Release);
                cpu.access(0);
                let _kept = deferred;
            },
            find_it_gone,
        ],
    );
}

/// All have passed when the frame is needed, so nothing is flushed, and nothing is owed any more: a CPU that then
/// finds the entry gone relies on what another CPU did before it passed.
#[test]
fn c_75_what_was_deferred_is_over_for_who_finds_it_gone_when_all_have_passed() {
    check_end(
        setup(),
        |[_, _, reader]| {
            reader.switch(1);
            reader.access(0);
        },
        [
            |cpu| {
                let deferred = cpu.take_and_defer(&[1]);
                cpu.machine.unlocked.store(1, Ordering::Release); // Release: the lock of the page table is dropped
                cpu.give_up(deferred);
            },
            find_it_gone,
            |cpu| {
                cpu.access(0);
                cpu.pass();
            },
        ],
        |machine| assert!(machine.interrupts.get() <= 2, "each of two is asked once"),
    );
}

/// A CPU that finds the entry gone flushes though nothing was sent to anybody, and has the frame for itself.
#[test]
fn c_75_an_entry_that_was_taken_and_deferred_is_flushed_by_who_finds_it_gone() {
    check(
        setup(),
        all_run_one_space,
        [
            |cpu| {
                let deferred = cpu.take_and_defer(&[1]);
                // Release: the lock of the page table is dropped.
                cpu.machine.unlocked.store(1, Ordering::Release);
                cpu.access(0);
                let _kept = deferred;
            },
            find_it_gone,
        ],
    );
}
