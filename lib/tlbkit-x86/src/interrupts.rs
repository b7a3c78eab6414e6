//! The interrupt flag, and waiting for an interrupt.

use core::arch::asm;

const INTERRUPT_FLAG: u64 = 1 << 9;

/// Whether a CPU takes interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Interrupts {
    /// They wait.
    Disabled = 0,
    /// They are taken.
    Enabled = 1,
}

/// True if this CPU takes interrupts. Allowed in any ring.
#[inline(always)]
#[must_use]
pub fn are_enabled() -> bool {
    let flags: u64;
    // SAFETY: pushes and pops one word; not `nostack`, so that no live word lies below the stack pointer.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) }
    are_enabled_in(flags)
}

/// The same of RFLAGS.
#[inline(always)]
const fn are_enabled_in(flags: u64) -> bool {
    flags & INTERRUPT_FLAG != 0
}

/// Makes this CPU take no interrupts.
///
/// # Safety
/// Ring 0, or I/O privilege.
#[inline(always)]
pub unsafe fn disable() {
    // SAFETY: the caller's.
    unsafe { asm!("cli", options(nostack, preserves_flags)) }
}

/// Makes this CPU take interrupts.
///
/// # Safety
/// As [`disable`]; handlers are in place.
#[inline(always)]
pub unsafe fn enable() {
    // SAFETY: the caller's.
    unsafe { asm!("sti", options(nostack, preserves_flags)) }
}

/// Disables interrupts and says what they were before.
///
/// # Safety
/// As [`disable`].
#[inline(always)]
#[must_use = "what they were before is to be restored"]
pub unsafe fn save_and_disable() -> Interrupts {
    let before = if are_enabled() { Interrupts::Enabled } else { Interrupts::Disabled };
    // SAFETY: the caller's.
    unsafe { disable() }
    before
}

/// Goes back to what [`save_and_disable`] found.
///
/// # Safety
/// As [`disable`]; handlers are in place if interrupts were enabled.
#[inline(always)]
pub unsafe fn restore(before: Interrupts) {
    if before == Interrupts::Enabled {
        // SAFETY: the caller's.
        unsafe { enable() }
    }
}

/// Enables interrupts and waits for one; none is lost in between.
///
/// # Safety
/// Ring 0; handlers are in place.
#[inline(always)]
pub unsafe fn enable_and_halt() {
    // SAFETY: the caller's. STI takes effect after the instruction that follows it.
    unsafe { asm!("sti", "hlt", options(nostack, preserves_flags)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of the host never has them off, so the flag alone is looked at.
    #[test]
    fn bit_9_alone_says_that_interrupts_are_taken() {
        assert!(are_enabled_in(0x202) && are_enabled_in(0x200));
        assert!(!are_enabled_in(0x002) && !are_enabled_in(!0x200));
    }
}
