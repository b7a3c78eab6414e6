//! C-41: an entry is taken by one exchange, so a dirty bit that the walker sets at that moment is in what was taken, or
//! the walker finds the entry changed and sets none.

use tlbkit_pmap::{Protection, Pte};

use crate::explore::check;

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
