//! C-28: a sweep that finds an entry gone returns only after the flush of the sweep that took it.

use crate::cpu::Cpu;
use crate::explore::check;

/// CPU 0 frees the page that it has stored to, while CPU 1 does the same and then relies on no CPU using the page.
fn beside_a_page_given_back(other: fn(&Cpu, u64)) {
    check(|[cpu, _]| cpu.map_and_store(1), [Cpu::give_back, other], |cpu, va| assert_eq!(cpu.entry(va), None));
}

#[test]
fn c_28_a_page_that_another_sweep_took_is_flushed_before_this_one_returns() {
    beside_a_page_given_back(|cpu, va| {
        cpu.give_back(va);
        cpu.machine.address.with_mut(|_| ());
    });
}

/// A retirement that finds the page gone gives its address back after the flush of the sweep that took it.
#[test]
fn c_28_a_region_is_retired_after_the_flush_of_the_sweep_that_took_its_page() {
    beside_a_page_given_back(|cpu, va| {
        cpu.retire(va);
        cpu.machine.address.with_mut(|_| ());
    });
}

/// CPU 0 flushes after it has dropped the regions' lock, so the region may be unmapped meanwhile.
#[test]
fn c_28_a_region_ends_after_the_flush_of_the_sweep_that_took_its_page() {
    beside_a_page_given_back(|cpu, va| {
        cpu.unmap(va);
        cpu.machine.address.with_mut(|_| ());
    });
}
