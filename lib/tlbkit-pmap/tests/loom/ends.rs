//! The end of a space: whoever frees its tables finds it emptied, and comes after all who walked them.
//!
//! The stage that a space has reached is a word without any ordering of its own: what orders the two CPUs is what the
//! protocol does when it says that the last reference is gone.

use tlbkit::{LazyReferences, Policy};

use crate::cpu::Cpu;
use crate::explore::check_under;
use crate::machine::POLICY;

fn one_holds_it_and_one_runs_it([first, second]: &[Cpu; 2]) -> u64 {
    first.switch();
    first.lazy();
    second.switch();
    let va = second.map(1);
    second.store(va);
    va
}

/// The CPU that leaves finds the notice, or the one that ends the space finds it gone.
#[test]
fn inv_1_the_end_of_a_space_meets_the_last_cpu_that_holds_it() {
    check_under(
        Policy { lazy_references: LazyReferences::Awaited, ..POLICY },
        one_holds_it_and_one_runs_it,
        [|cpu, _| cpu.load_kernel(), |cpu, _| cpu.end()],
        |cpu, _| assert!(cpu.machine.is_ended.get(), "nobody holds the space, and nobody freed it"),
    );
}
