//! The end of a space: its tables are freed only after it was emptied, and after every walk of them.
//!
//! The stage of a space is accessed without any ordering. What orders the two CPUs is what the protocol does when it
//! reports that the last lazy reference is gone.

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
