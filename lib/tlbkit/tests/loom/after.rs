//! What comes after a race: each handshake is followed by the next act of the same CPUs, which relies on what the race
//! has left behind.

use tlbkit::sync::Ordering;
use tlbkit::{CpuSetUpkeep, LazyReferences, Policy};

use crate::cpu::Cpu;
use crate::explore::{check, check_end};
use crate::machine::{Machine, POLICY, Setup};

fn awaited(spaces: usize) -> Setup {
    let policy = Policy { lazy_references: LazyReferences::Awaited, ..POLICY };
    Setup { policy, spaces, preemptions: 2, ..Setup::default() }
}

fn go_lazy_in_1([_, cpu]: &[Cpu; 2]) {
    cpu.switch(1);
    cpu.lazy();
}

fn is_told(machine: &Machine) {
    assert!(machine.tables[1].root.is_freed(), "space 1 is held by nobody, and nobody was told");
}

/// The notice may be found only when the kernel's own tables are left again: the space is gone by then.
#[test]
fn inv_1_a_cpu_leaves_the_kernels_tables_after_its_race_with_an_end() {
    let leave: fn(&Cpu) = |cpu| {
        cpu.load_kernel();
        cpu.switch(2);
    };
    check_end(awaited(2), go_lazy_in_1, [|cpu| cpu.destroy(1), leave], is_told);
}

/// The notice may be found only in the next space, which is held lazily, too, and does not end.
#[test]
fn inv_1_a_cpu_leaves_the_next_space_after_its_race_with_an_end() {
    let leave: fn(&Cpu) = |cpu| {
        cpu.switch(2);
        cpu.lazy();
        cpu.load_kernel();
    };
    check_end(awaited(2), go_lazy_in_1, [|cpu| cpu.destroy(1), leave], |machine| {
        is_told(machine);
        assert!(!machine.tables[2].root.is_freed(), "space 2 did not end");
    });
}

/// A CPU that has come back from lazy TLB mode beside one flush is asked by the next.
#[test]
fn inv_6_a_second_flush_meets_the_cpu_that_came_back_beside_the_first() {
    let flush: fn(&Cpu) = |cpu| {
        cpu.unmap(1, &[0]);
        cpu.unmap(1, &[1]);
    };
    let back: fn(&Cpu) = |cpu| {
        cpu.switch(1);
        cpu.access(0);
        cpu.access(1);
    };
    let setup = Setup { pages: 2, preemptions: 2, ..Setup::default() };
    let begin: fn(&[Cpu; 2]) = |[first, second]| {
        first.switch(1);
        second.switch(1);
        second.lazy();
    };
    check(setup, begin, [flush, back]);
}

/// Every flush may take CPUs out of the set, and an end asks nobody.
const TRIMMED: Policy =
    Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 1 }, lazy_references: LazyReferences::Awaited, ..POLICY };

/// A flush was issued, and the task that would wait for it was killed. The last program of the space ends, and then the
/// space, while the responder has still to answer: it must not ask for the space any more.
#[test]
fn inv_1_a_space_ends_whose_issued_flush_nobody_waits_for() {
    let begin: fn(&[Cpu; 2]) = |[first, second]| {
        second.switch(1);
        first.hand_over(first.issue(1, &[0]));
    };
    let leave: fn(&Cpu) = |cpu| {
        cpu.access_uninterrupted(0);
        cpu.switch(2);
        // Release: the program has ended.
        cpu.machine.unlocked.store(1, Ordering::Release);
        cpu.access(0);
    };
    let end: fn(&Cpu) = |cpu| {
        // Acquire: partner is the Release above.
        if cpu.machine.unlocked.load(Ordering::Acquire) != 0 {
            cpu.destroy(1);
        }
    };
    check(Setup { policy: TRIMMED, spaces: 2, preemptions: 2, ..Setup::default() }, begin, [end, leave]);
}

/// The second flush meets a CPU that switched to the space beside the batch, and is current as of that or not yet.
#[test]
fn inv_6_a_flush_after_a_batch_meets_the_cpu_that_came_beside_the_batch() {
    let flush: fn(&Cpu) = |cpu| {
        cpu.evict(&[1]);
        cpu.unmap(1, &[1]);
    };
    let come: fn(&Cpu) = |cpu| {
        cpu.switch(1);
        cpu.access(0);
        cpu.access(1);
    };
    let setup = Setup { pages: 2, preemptions: 2, ..Setup::default() };
    check(setup, |_| (), [flush, come]);
}

/// A batch meets a CPU that came back from lazy mode beside a flush.
#[test]
fn inv_6_a_batch_after_a_flush_meets_the_cpu_that_came_back_beside_the_flush() {
    let flush: fn(&Cpu) = |cpu| {
        cpu.unmap(1, &[1]);
        cpu.evict(&[1]);
    };
    let back: fn(&Cpu) = |cpu| {
        cpu.switch(1);
        cpu.access(1);
        cpu.access(0);
    };
    let begin: fn(&[Cpu; 2]) = |[_, second]| {
        second.switch(1);
        second.lazy();
    };
    let setup = Setup { pages: 2, preemptions: 2, ..Setup::default() };
    check(setup, begin, [flush, back]);
}

/// A CPU goes offline beside one flush, comes back, and runs the space again: the next flush asks it.
#[test]
fn inv_6_a_second_flush_meets_the_cpu_that_was_offline_in_the_first() {
    let flush: fn(&Cpu) = |cpu| {
        cpu.unmap(1, &[0]);
        cpu.unmap(1, &[1]);
    };
    let go_and_come: fn(&Cpu) = |cpu| {
        cpu.access(0);
        cpu.offline();
        cpu.bring_up();
        cpu.switch(1);
        cpu.access(0);
        cpu.access(1);
    };
    let setup = Setup { pages: 2, preemptions: 2, ..Setup::default() };
    check(setup, |[_, cpu]| cpu.switch(1), [flush, go_and_come]);
}
