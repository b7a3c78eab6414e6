//! Frames that come back after a grace period: a CPU that passes has flushed, and none is interrupted.

use crate::cpu::Cpu;
use crate::explore::{all_run_one_space, check};
use crate::machine::Setup;

fn setup() -> Setup {
    Setup { preemptions: 2, ..Setup::default() }
}

/// Retires a page of the first space, and asks for it so many times.
fn retire(cpu: &Cpu, page: usize, turns: usize) {
    let retired = cpu.retire(1, &[page]);
    cpu.reclaim(1, retired, turns);
}

/// Uses the page and passes, twice.
pub(crate) fn use_and_pass(cpu: &Cpu) {
    for _ in 0..2 {
        cpu.access(0);
        cpu.pass();
    }
}

/// The other CPU uses the page, passes, and uses it again: it is not freed under it.
#[test]
fn inv_6_what_is_retired_meets_a_cpu_that_passes() {
    check(setup(), all_run_one_space, [|cpu| retire(cpu, 0, 2), use_and_pass]);
}

/// A CPU that is on its way into the space, or out of it, is waited for.
#[test]
fn inv_2_what_is_retired_meets_a_switch() {
    check(
        Setup { spaces: 2, ..setup() },
        |[_, cpu]| cpu.switch(2),
        [
            |cpu| retire(cpu, 0, 2),
            |cpu| {
                cpu.switch(1);
                cpu.access(0);
                cpu.switch(2);
                cpu.access(0);
            },
        ],
    );
}

/// A CPU that idles need not pass, and comes back.
#[test]
fn inv_5_what_is_retired_meets_a_lazy_cpu_that_comes_back() {
    check(
        setup(),
        all_run_one_space,
        [
            |cpu| retire(cpu, 0, 1),
            |cpu| {
                cpu.access(0);
                cpu.lazy();
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// Two retire in one epoch, and each asks: who has passed for one has for the other.
#[test]
fn inv_6_two_that_are_retired_share_an_epoch() {
    check(
        Setup { pages: 2, ..setup() },
        all_run_one_space,
        [
            |cpu| {
                let retired = cpu.retire(1, &[0]);
                cpu.access(1);
                cpu.reclaim(1, retired, 1);
            },
            |cpu| {
                let retired = cpu.retire(1, &[1]);
                cpu.access(0);
                cpu.reclaim(1, retired, 1);
            },
        ],
    );
}

/// The epoch of what one CPU has retired is ended by another, which passes then: it has not synchronised with the first
/// but by the fences.
#[test]
fn inv_6_an_epoch_is_ended_by_a_cpu_that_passes_it() {
    check(
        Setup { pages: 2, ..setup() },
        all_run_one_space,
        [
            |cpu| retire(cpu, 0, 2),
            |cpu| {
                cpu.access(0);
                retire(cpu, 1, 1);
                cpu.pass();
                cpu.access(0);
            },
        ],
    );
}

/// Who cannot wait asks everybody.
#[test]
fn inv_6_what_is_retired_is_flushed_when_memory_is_low() {
    check(setup(), all_run_one_space, [|cpu| retire(cpu, 0, 0), |cpu| (0..2).for_each(|_| cpu.access(0))]);
}
