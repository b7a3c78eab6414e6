//! A window of the kernel's addresses goes from one owner to the next: no CPU translates it for the old one by then.

use tlbkit::Hardware;
use tlbkit_pmap::{KernelWindow, Memory, Purpose};

use crate::cpu::Cpu;
use crate::explore::check;

/// Maps one frame in the only window that is free.
fn map(cpu: &Cpu) -> Option<KernelWindow> {
    let mem = cpu.machine.mem;
    let frame = mem.alloc(12, Purpose::Data).expect("memory");
    let window = cpu.machine.kernel.map(&cpu.protocol(), mem, [frame.at]).expect("memory");
    // The window has its own reference.
    mem.put(frame);
    window
}

#[test]
fn inv_1_a_window_that_is_given_out_again_is_translated_by_nobody() {
    check(
        |[cpu, _]| {
            let window = map(cpu).expect("a free window");
            assert!(cpu.walk(window.va));
            window.va
        },
        [
            |cpu, va| cpu.machine.kernel.unmap(&cpu.protocol(), cpu.machine.mem, KernelWindow { va, pages: 1 }),
            |cpu, va| {
                let window = loop {
                    match map(cpu) {
                        Some(window) => break window,
                        None => cpu.relax(),
                    }
                };
                assert_eq!(window.va, va);
                cpu.machine.address.with_mut(|_| ());
            },
        ],
        |_, _| (),
    );
}
