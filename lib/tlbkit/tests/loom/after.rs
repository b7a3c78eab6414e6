//! What comes after a race: each handshake is followed by the next act of the same CPUs, which relies on what the race
//! has left behind.

use tlbkit::{LazyReferences, Policy};

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
