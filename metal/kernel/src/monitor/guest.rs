//! The way into the guest's kernel and out of it, as the CPU would go there: SYSCALL and SYSRET, faults and interrupts
//! and IRET.

use super::decode::{R11, RCX};
use super::state::{Core, IO_PRIVILEGE, Ring};
use crate::arch::gates::Frame;
use crate::arch::tables;
use crate::traps;

const INTERRUPT_FLAG: u64 = 1 << 9;
/// What the guest's kernel finds on its stack: itself in ring 0, and a program in a segment that is none, so that each
/// IRET traps.
const KERNEL_SELECTOR: u64 = 0x08;
const PROGRAM_SELECTOR: u64 = 0x43;
/// Vectors of the CPU's own that push an error code, as bits.
const WITH_ERROR: u64 = 1 << 8 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 17 | 1 << 21;

impl Core {
    /// The guest's kernel goes on where the CPU would go for `vector`.
    pub(super) fn deliver(&mut self, frame: &mut Frame, vector: u64, error: u64) {
        let (code, stack) = match self.ring {
            Ring::Kernel => (KERNEL_SELECTOR, frame.rsp),
            Ring::Program => (PROGRAM_SELECTOR, tables::trap_stack()),
        };
        let words = [error, frame.rip, code, frame.flags, frame.rsp, frame.ss];
        let has_error = vector < 32 && WITH_ERROR >> vector & 1 == 1;
        let words = if has_error { &words[..] } else { &words[1..] };
        let top = (stack & !15) as *mut u64;
        // SAFETY: a stack of the guest's kernel, which has room below its pointer.
        unsafe {
            let at = top.sub(words.len());
            at.copy_from_nonoverlapping(words.as_ptr(), words.len());
            frame.rsp = at as u64;
        }
        frame.rip = traps::trap_gates as *const () as u64 + 16 * vector;
        frame.flags &= !INTERRUPT_FLAG;
        self.ring = Ring::Kernel;
    }

    /// IRET of the guest's kernel.
    pub(super) fn iret(&mut self, frame: &mut Frame) {
        // SAFETY: the five words that the guest's kernel has left on its stack.
        let [rip, code, flags, rsp, _ss] = unsafe { *(frame.rsp as *const [u64; 5]) };
        (frame.rip, frame.rsp) = (rip, rsp);
        self.set_flags(frame, flags);
        if code == PROGRAM_SELECTOR {
            self.enter_program();
        }
    }

    /// SYSCALL of a program; `next` is the instruction behind it.
    pub(super) fn syscall(&mut self, frame: &mut Frame, next: u64) {
        frame.set(RCX, next);
        frame.set(R11, frame.flags);
        frame.rip = traps::syscall_gate as *const () as u64;
        frame.flags &= !tables::CLEARED_FLAGS;
        self.ring = Ring::Kernel;
    }

    /// SYSRET of the guest's kernel.
    pub(super) fn sysret(&mut self, frame: &mut Frame) {
        frame.rip = frame.get(RCX);
        self.set_flags(frame, frame.get(R11));
        self.enter_program();
    }

    fn set_flags(&self, frame: &mut Frame, flags: u64) {
        frame.flags = flags | IO_PRIVILEGE;
    }

    /// What only its kernel may use must fault again.
    fn enter_program(&mut self) {
        self.ring = Ring::Program;
        self.shadow.empty_kernel_pages();
    }
}
