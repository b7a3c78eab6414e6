//! Sending an IPI: through the memory-mapped interrupt command register of xAPIC, or the MSR of x2APIC.

use core::arch::asm;

use crate::interrupts;
use crate::registers::write_msr;

/// Word indices of the two halves of xAPIC's interrupt command register.
const COMMAND_LOW: usize = 0x300 / 4;
const COMMAND_HIGH: usize = 0x310 / 4;
const PENDING: u32 = 1 << 12;
const X2APIC_COMMAND: u32 = 0x830;

/// Fixed delivery, physical destination, edge-triggered, level asserted.
const FIXED: u32 = 1 << 14;
const ALL_BUT_SELF: u32 = 0b11 << 18;

/// How the local APIC's registers are accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apic {
    /// xAPIC: memory, mapped uncached at this address.
    Memory(*mut u32),
    /// x2APIC: model-specific registers.
    Registers,
}

// SAFETY: the pointer is merely an address, at which each CPU finds its own xAPIC registers. Only `send` accesses them,
// and its caller guarantees that it runs on the right CPU.
unsafe impl Send for Apic {}
// SAFETY: as above; `send` accesses nothing but the registers of the CPU that it runs on.
unsafe impl Sync for Apic {}

/// The CPUs that an IPI is sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The CPU with this APIC id.
    One(u32),
    /// Every CPU but this one, even those that the kernel has not brought up.
    AllButSelf,
}

impl Apic {
    /// Sends `vector`. Everything that this CPU stored before is visible to a CPU that takes the interrupt.
    ///
    /// # Safety
    /// Ring 0; the APIC is enabled in this mode, and every receiver has a handler for `vector`.
    pub unsafe fn send(self, to: Destination, vector: u8) {
        let (id, shorthand) = match to {
            Destination::One(id) => (id, 0),
            Destination::AllButSelf => (0, ALL_BUT_SELF),
        };
        let low = u32::from(vector) | FIXED | shorthand;
        // SAFETY: by the caller's contract.
        unsafe {
            match self {
                Self::Memory(registers) => Self::send_xapic(registers, id, low),
                Self::Registers => Self::send_x2apic(id, low),
            }
        }
    }

    /// xAPIC takes two stores. Interrupts are off in between, because a handler that sends an IPI would overwrite the
    /// destination.
    unsafe fn send_xapic(registers: *mut u32, id: u32, low: u32) {
        // SAFETY: by the caller's contract: ring 0, and the registers are mapped.
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

    /// The MSR write of x2APIC is not serializing and could overtake earlier stores, hence the fences.
    unsafe fn send_x2apic(id: u32, low: u32) {
        // SAFETY: by the caller's contract.
        unsafe {
            asm!("mfence", "lfence", options(nostack, preserves_flags));
            write_msr(X2APIC_COMMAND, u64::from(id) << 32 | u64::from(low));
        }
    }
}
