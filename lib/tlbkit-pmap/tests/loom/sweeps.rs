//! C-28: a sweep that finds an entry gone returns only after the flush of the sweep that took it.

use crate::explore::check;

#[test]
fn c_28_a_page_that_another_sweep_took_is_flushed_before_this_one_returns() {
    check(
        |[cpu, _]| {
            let va = cpu.map(1);
            cpu.switch();
            cpu.store(va);
            va
        },
        [
            |cpu, va| cpu.machine.vm.dontneed(&cpu.protocol(), cpu.machine.mem, va, 1).expect("mapped"),
            |cpu, va| {
                cpu.machine.vm.dontneed(&cpu.protocol(), cpu.machine.mem, va, 1).expect("mapped");
                cpu.machine.address.with_mut(|_| ());
            },
        ],
        |cpu, va| assert_eq!(cpu.entry(va), None),
    );
}

/// Who gives the page back has let go of the regions' lock when it flushes, so its region may end meanwhile.
#[test]
fn c_28_a_region_ends_after_the_flush_of_the_sweep_that_took_its_page() {
    check(
        |[cpu, _]| {
            let va = cpu.map(1);
            cpu.switch();
            cpu.store(va);
            va
        },
        [
            |cpu, va| cpu.machine.vm.dontneed(&cpu.protocol(), cpu.machine.mem, va, 1).expect("mapped"),
            |cpu, va| {
                cpu.machine.vm.unmap(&cpu.protocol(), cpu.machine.mem, va, 1).expect("mapped");
                cpu.machine.address.with_mut(|_| ());
            },
        ],
        |cpu, va| assert_eq!(cpu.entry(va), None),
    );
}
