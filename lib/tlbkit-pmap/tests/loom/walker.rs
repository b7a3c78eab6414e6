//! C-41: an entry is taken by one exchange, so a dirty bit that the walker sets at that moment is in what was taken, or
//! the walker finds the entry changed and sets none. C-45: so is an accessed bit, without which nobody has cached it.

use tlbkit::{Policy, Unaccessed};
use tlbkit_pmap::{Protection, Pte};

use crate::explore::{check, check_under};
use crate::machine::POLICY;

#[test]
fn c_41_a_dirty_bit_set_while_the_page_is_protected_is_kept() {
    check(
        |[cpu, walker]| {
            let va = cpu.map(1);
            walker.switch();
            cpu.enter_clean(va);
            assert!(walker.walk(va));
            va
        },
        [
            |cpu, va| {
                cpu.machine.vm.protect(&cpu.protocol(), cpu.machine.mem, va, 1, Protection::Read).expect("mapped");
            },
            |walker, va| {
                if walker.store_to_clean(va) {
                    walker.machine.has_stored.set(true);
                }
            },
        ],
        |cpu, va| {
            let is_dirty = cpu.entry(va).is_some_and(|pte| pte.has(Pte::DIRTY));
            assert_eq!(is_dirty, cpu.machine.has_stored.get(), "a dirty bit was lost, or came from nowhere");
        },
    );
}

const SPARING: Policy = Policy { unaccessed: Unaccessed::Spared, ..POLICY };

/// A CPU that has cached the page may use it until the end.
#[test]
fn c_45_a_page_is_freed_without_a_flush_only_if_its_accessed_bit_was_never_set() {
    check_under(
        SPARING,
        |[cpu, walker]| {
            let va = cpu.map(1);
            cpu.switch();
            walker.switch();
            cpu.enter_unaccessed(va);
            va
        },
        [
            |cpu, va| cpu.give_back(va),
            |walker, va| {
                walker.walk(va);
            },
        ],
        |cpu, va| assert_eq!(cpu.entry(va), None),
    );
}

#[test]
fn c_45_a_page_that_is_aged_is_flushed_before_another_cpu_finds_it_so() {
    check_under(
        SPARING,
        |[cpu, other]| {
            let va = cpu.map_and_store(1);
            other.switch();
            assert!(other.walk(va));
            va
        },
        [
            |cpu, va| {
                cpu.machine.vm.age(&cpu.protocol(), cpu.machine.mem, va, 1).expect("mapped");
                cpu.load_kernel();
            },
            |cpu, va| cpu.give_back(va),
        ],
        |cpu, va| assert_eq!(cpu.entry(va), None),
    );
}
