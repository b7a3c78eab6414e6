//! Sending an interrupt to another CPU: the command register of xAPIC, in memory, and of x2APIC, a register.

use core::arch::asm;

use crate::interrupts;
use crate::registers::write_msr;

/// Word indices of the xAPIC's two command registers.
const COMMAND_LOW: usize = 0x300 / 4;
const COMMAND_HIGH: usize = 0x310 / 4;
const PENDING: u32 = 1 << 12;
const X2APIC_COMMAND: u32 = 0x830;

/// Edge, asserted, fixed delivery, physical destination.
const FIXED: u32 = 1 << 14;
const ALL_BUT_SELF: u32 = 0b11 << 18;

/// Where the local APIC's registers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apic {
    /// xAPIC: mapped uncached at this address.
    Memory(*mut u32),
    /// x2APIC: model-specific registers.
    Registers,
}

// SAFETY: the pointer is an address and no more: with xAPIC each CPU finds its own registers there. They are touched by
// `send` alone, whose caller vouches for the CPU on which it is called.
unsafe impl Send for Apic {}
// SAFETY: as above; `send` shares nothing but the registers of the CPU that calls it.
unsafe impl Sync for Apic {}

/// Whom to interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The CPU with this APIC id.
    One(u32),
    /// Every CPU but this one, whether the kernel brought it up or not.
    Others,
}

impl Apic {
    /// Sends `vector`. What this CPU stored before is visible to whoever takes the interrupt.
    ///
    /// # Safety
    /// Ring 0; the APIC is enabled in this mode, and the receiver has a handler for `vector`.
    pub unsafe fn send(self, to: Destination, vector: u8) {
        let (id, shorthand) = match to {
            Destination::One(id) => (id, 0),
            Destination::Others => (0, ALL_BUT_SELF),
        };
        let low = u32::from(vector) | FIXED | shorthand;
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Memory(registers) => Self::send_xapic(registers, id, low),
                Self::Registers => Self::send_x2apic(id, low),
            }
        }
    }

    /// Two stores that no handler of this CPU may come between: it might send one of its own.
    unsafe fn send_xapic(registers: *mut u32, id: u32, low: u32) {
        // SAFETY: the caller's: mapped registers, ring 0.
        unsafe {
            let before = interrupts::save_and_disable();
            while registers.add(COMMAND_LOW).read_volatile() & PENDING != 0 {
                core::hint::spin_loop();
            }
            registers.add(COMMAND_HIGH).write_volatile(id << 24);
            registers.add(COMMAND_LOW).write_volatile(low);
            interrupts::restore(before);
        }
    }

    /// One register write, which does not wait for earlier stores: hence the fences.
    unsafe fn send_x2apic(id: u32, low: u32) {
        // SAFETY: the caller's.
        unsafe {
            asm!("mfence", "lfence", options(nostack, preserves_flags));
            write_msr(X2APIC_COMMAND, u64::from(id) << 32 | u64::from(low));
        }
    }
}
