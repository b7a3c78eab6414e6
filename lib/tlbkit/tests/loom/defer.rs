//! Frames whose flush is deferred: a CPU that has passed since is not asked when they are needed, the others are.

use tlbkit::sync::Ordering;
use tlbkit::{TlbGather, Translations};

use crate::cpu::Cpu;
use crate::explore::{all_run_one_space, check};
use crate::machine::Setup;

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
    check(
        setup(),
        all_run_one_space,
        [
            |cpu| defer(cpu, &[1]),
            |cpu| {
                cpu.access(0);
                cpu.pass();
                cpu.access(0);
                cpu.pass();
            },
        ],
    );
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
            |cpu| {
                // Acquire: the lock is taken.
                if cpu.machine.unlocked.load(Ordering::Acquire) != 0 {
                    let gather = TlbGather::new(Translations::OfSpace(cpu.machine.space(1)), Vec::<usize>::new());
                    assert!(gather.flush(&cpu.protocol()).into_frames().is_empty());
                    cpu.machine.tables[1].pages[0].frame.free();
                }
            },
        ],
    );
}
