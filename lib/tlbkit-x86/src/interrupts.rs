//! The interrupt flag, waiting, and the time-stamp counter.

use core::arch::asm;

const INTERRUPT_FLAG: u64 = 1 << 9;

/// True if interrupts are on. Allowed in any ring.
#[inline(always)]
#[must_use]
pub fn are_on() -> bool {
    let flags: u64;
    // SAFETY: pushes and pops one word; not `nostack`, so that no live word lies below the stack pointer.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) }
    flags & INTERRUPT_FLAG != 0
}

/// Interrupts off.
///
/// # Safety
/// Ring 0, or I/O privilege.
#[inline(always)]
pub unsafe fn off() {
    // SAFETY: the caller's.
    unsafe { asm!("cli", options(nostack, preserves_flags)) }
}

/// Interrupts on.
///
/// # Safety
/// As [`off`]; handlers are in place.
#[inline(always)]
pub unsafe fn on() {
    // SAFETY: the caller's.
    unsafe { asm!("sti", options(nostack, preserves_flags)) }
}

/// Turns interrupts on and waits for one; none is lost in between.
///
/// # Safety
/// Ring 0; handlers are in place.
#[inline(always)]
pub unsafe fn halt() {
    // SAFETY: the caller's. STI takes effect after the instruction that follows it.
    unsafe { asm!("sti", "hlt", options(nostack, preserves_flags)) }
}

/// In a loop that waits for another CPU.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

/// The time-stamp counter.
#[inline(always)]
#[must_use]
pub fn now_cycles() -> u64 {
    // SAFETY: every x86-64 CPU has it, and no kernel that links this forbids it to itself.
    unsafe { core::arch::x86_64::_rdtsc() }
}
