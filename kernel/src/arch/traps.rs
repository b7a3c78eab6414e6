//! Traps and interrupts: page faults of programs, two interrupts, and everything else, which is fatal.

use core::arch::global_asm;

use tlbkit::IrqsOff;
use tlbkit_pmap::Access;

use super::apic;
use crate::machine::{self, counters::Counter};
use crate::rules::attempt;
use crate::{calls, report};

global_asm!(include_str!("traps.s"), options(att_syntax));

const PAGE_FAULT: u64 = 14;
const WRITE: u64 = 1 << 1;
const RESERVED_BIT: u64 = 1 << 3;

/// What `traps.s` pushes.
#[repr(C)]
struct Frame {
    /// r15 first, rax last.
    registers: [u64; 15],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

impl Frame {
    const fn is_from_user(&self) -> bool {
        self.cs & 3 == 3
    }
}

#[unsafe(no_mangle)]
extern "C" fn on_trap(frame: &mut Frame) {
    if let (false, Some(rip)) = (frame.is_from_user(), attempt::resume_at(frame.vector)) {
        frame.rip = rip;
        return;
    }
    match frame.vector {
        PAGE_FAULT if frame.is_from_user() => page_fault(frame),
        vector if vector == u64::from(apic::FLUSH_VECTOR) => flush_interrupt(frame),
        vector if vector == u64::from(apic::KICK_VECTOR) => apic::end_of_interrupt(),
        vector if vector == u64::from(apic::SPURIOUS_VECTOR) => {}
        _ => {
            // SAFETY: ring 0.
            let address = unsafe { tlbkit_x86::read_cr2() };
            report::failure(&format_args!(
                "trap {} (error {:#x}) at {:#x}, ring {}, address {address:#x}",
                frame.vector,
                frame.error,
                frame.rip,
                frame.cs & 3
            ))
        }
    }
}

/// A fault of a program, on its kernel stack: may wait for other CPUs, so interrupts go on.
fn page_fault(frame: &Frame) {
    // SAFETY: ring 0; read before interrupts go on.
    let va = unsafe { tlbkit_x86::read_cr2() };
    if frame.error & RESERVED_BIT != 0 {
        report::failure(&format_args!("the walk to {va:#x} went through a table that had been freed"));
    }
    let access = if frame.error & WRITE != 0 { Access::Write } else { Access::Read };
    machine::in_kernel(|| calls::page_fault(va, access));
}

/// Another CPU asks for a flush.
fn flush_interrupt(frame: &Frame) {
    let irqs = IrqsOff::assume();
    let cpu = machine::cpu();
    machine::counters::add(Counter::IpisReceived, 1);
    if frame.is_from_user() {
        cpu.enter_kernel(&irqs);
    }
    apic::end_of_interrupt();
    cpu.answer(&irqs);
    if frame.is_from_user() {
        cpu.exit_to_user(&irqs);
    }
}
