//! INV-1 for the top-level table: a space dies while a CPU holds it lazily.

use tlbkit::{CpuSetUpkeep, LazyReferences, Policy};

use crate::cpu::Cpu;
use crate::explore::{check, check_end};
use crate::machine::{Machine, POLICY, Setup};

/// Whoever comes last frees the table, after everything that the other did with it.
#[test]
fn inv_1_destroy_meets_the_last_counted_lazy_cpu() {
    check(
        Setup { policy: Policy { lazy_references: LazyReferences::Counted, ..POLICY }, ..Setup::default() },
        |[_, cpu]| {
            cpu.switch(1);
            cpu.lazy();
        },
        [|cpu| cpu.destroy(1), |cpu| cpu.load_kernel()],
    );
}

#[test]
fn inv_1_destroy_shoots_down_a_lazy_cpu() {
    check(
        Setup { spaces: 2, ..Setup::default() },
        |[_, cpu]| {
            cpu.switch(1);
            cpu.lazy();
        },
        [|cpu| cpu.destroy(1), |cpu| cpu.switch(2)],
    );
}

const AWAITED: Policy = Policy { lazy_references: LazyReferences::Awaited, ..POLICY };

fn awaited(spaces: usize) -> Setup {
    Setup { policy: AWAITED, spaces, ..Setup::default() }
}

fn is_told(machine: &Machine) {
    assert!(machine.tables[1].root.is_freed(), "space 1 is held by nobody, and nobody was told");
}

fn go_lazy_in_1([_, cpu]: &[Cpu; 2]) {
    cpu.switch(1);
    cpu.lazy();
}

/// Nobody is interrupted: the CPU that leaves finds the notice, or the destroyer finds it leaving.
#[test]
fn inv_1_destroy_meets_a_lazy_cpu_that_switches() {
    check_end(awaited(2), go_lazy_in_1, [|cpu| cpu.destroy(1), |cpu| cpu.switch(2)], is_told);
}

#[test]
fn inv_1_destroy_meets_a_lazy_cpu_that_loads_the_kernels_tables() {
    check_end(awaited(1), go_lazy_in_1, [|cpu| cpu.destroy(1), |cpu| cpu.load_kernel()], is_told);
}

/// The set is exact, but is not written by a CPU that leaves lazily: the space may be gone by then.
#[test]
fn inv_1_destroy_meets_a_lazy_cpu_that_leaves_an_exact_set() {
    let exact = Policy { cpu_set: CpuSetUpkeep::Exact, ..AWAITED };
    let setup = Setup { policy: exact, ..awaited(2) };
    check_end(setup, go_lazy_in_1, [|cpu| cpu.destroy(1), |cpu| cpu.switch(2)], is_told);
}

/// Two leave, and one of them is the last, or the destroyer is.
#[test]
fn inv_1_destroy_meets_two_lazy_cpus_that_leave() {
    check_end(
        Setup { preemptions: 2, ..awaited(2) },
        |[_, first, second]| {
            for cpu in [first, second] {
                cpu.switch(1);
                cpu.lazy();
            }
        },
        [|cpu| cpu.destroy(1), |cpu| cpu.switch(2), |cpu| cpu.load_kernel()],
        is_told,
    );
}

/// A CPU leaves one dying space lazily, and then the other: no notice of the one is taken for one of the other, and
/// none is lost.
#[test]
fn inv_1_two_destroyers_meet_a_cpu_that_holds_one_space_after_the_other() {
    check_end(
        Setup { preemptions: 2, ..awaited(3) },
        |[_, _, cpu]| {
            cpu.switch(2);
            cpu.lazy();
            cpu.switch(1);
            cpu.lazy();
        },
        [|cpu| cpu.destroy(1), |cpu| cpu.destroy(2), |cpu| cpu.switch(3)],
        |machine| {
            is_told(machine);
            assert!(machine.tables[2].root.is_freed(), "space 2 was held by nobody");
        },
    );
}
