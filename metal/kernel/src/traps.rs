//! Traps and interrupts: page faults of programs, two interrupts, and everything else, which is fatal.

use core::arch::global_asm;

use tlbkit::IrqsOff;
use tlbkit_pmap::Access;

use crate::arch::gates::{FAULT_RESERVED_BIT, FAULT_WRITE, Frame, PAGE_FAULT};
use crate::arch::{apic, attempt, tables};
use crate::counters::{self, Counter};
use crate::{calls, machine, report};

unsafe extern "C" {
    /// The first of the kernel's gates.
    pub(crate) fn trap_gates();
    /// Where SYSCALL arrives.
    pub(crate) fn syscall_gate();
}

/// What the tables of every CPU lead to.
pub(crate) const ENTRIES: tables::Entries = tables::Entries { traps: trap_gates, syscall: syscall_gate };

global_asm!(include_str!("traps.s"), syscall = sym calls::on_syscall, options(att_syntax));
global_asm!(include_str!("arch/gates.s"), gates = sym trap_gates, handler = sym on_trap, options(att_syntax));

/// Where every trap arrives, with interrupts off.
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

/// A page fault of a program, on its kernel stack. It may wait for other CPUs, so interrupts are enabled.
fn page_fault(frame: &Frame) {
    // SAFETY: ring 0; read before interrupts go on.
    let va = unsafe { tlbkit_x86::read_cr2() };
    if frame.error & FAULT_RESERVED_BIT != 0 {
        report::failure(&format_args!("the walk to {va:#x} went through a table that had been freed"));
    }
    let access = if frame.error & FAULT_WRITE != 0 { Access::Write } else { Access::Read };
    machine::in_kernel(|| calls::page_fault(va, access));
}

/// The flush IPI.
fn flush_interrupt(frame: &Frame) {
    counters::add(Counter::IpisReceived, 1);
    if frame.is_from_user() {
        machine::arrive_from_user();
    }
    apic::end_of_interrupt();
    machine::cpu().answer(&IrqsOff::assume());
    machine::pass_after_answer();
    if frame.is_from_user() {
        machine::leave_to_user();
    }
}
