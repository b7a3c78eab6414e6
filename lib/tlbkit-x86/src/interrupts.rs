//! The interrupt flag, and halting until an interrupt arrives.

use core::arch::asm;

const INTERRUPT_FLAG: u64 = 1 << 9;

/// The state of the interrupt flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Interrupts {
    /// Clear: interrupts stay pending.
    Disabled = 0,
    /// Set: interrupts are taken.
    Enabled = 1,
}

/// True if interrupts are enabled on this CPU. Allowed in any ring.
#[inline(always)]
#[must_use]
pub fn are_enabled() -> bool {
    let flags: u64;
    // SAFETY: pushes and pops one word. Not `nostack`, so the compiler keeps nothing in the red zone below it.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) }
    are_enabled_in(flags)
}

/// True if this value of RFLAGS has the interrupt flag set.
#[inline(always)]
const fn are_enabled_in(flags: u64) -> bool {
    flags & INTERRUPT_FLAG != 0
}

/// Disables interrupts on this CPU.
///
/// # Safety
/// Ring 0, or I/O privilege.
#[inline(always)]
pub unsafe fn disable() {
    // SAFETY: by the caller's contract.
    unsafe { asm!("cli", options(nostack, preserves_flags)) }
}

/// Enables interrupts on this CPU.
///
/// # Safety
/// As [`disable`]; the handlers are in place.
#[inline(always)]
pub unsafe fn enable() {
    // SAFETY: by the caller's contract.
    unsafe { asm!("sti", options(nostack, preserves_flags)) }
}

/// Disables interrupts and returns the state before.
///
/// # Safety
/// As [`disable`].
#[inline(always)]
#[must_use = "the state before is what `restore` needs"]
pub unsafe fn save_and_disable() -> Interrupts {
    let before = if are_enabled() { Interrupts::Enabled } else { Interrupts::Disabled };
    // SAFETY: by the caller's contract.
    unsafe { disable() }
    before
}

/// Restores the state that [`save_and_disable`] returned.
///
/// # Safety
/// As [`disable`]; the handlers are in place if interrupts were enabled.
#[inline(always)]
pub unsafe fn restore(before: Interrupts) {
    if before == Interrupts::Enabled {
        // SAFETY: by the caller's contract.
        unsafe { enable() }
    }
}

/// Enables interrupts and halts until one arrives. An interrupt between the two instructions is not missed, because STI
/// takes effect only after the instruction that follows it.
///
/// # Safety
/// Ring 0; the handlers are in place.
#[inline(always)]
pub unsafe fn enable_and_halt() {
    // SAFETY: by the caller's contract.
    unsafe { asm!("sti", "hlt", options(nostack, preserves_flags)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user program never runs with interrupts disabled, so only the decoding of the flag can be tested.
    #[test]
    fn bit_9_alone_says_that_interrupts_are_taken() {
        assert!(are_enabled_in(0x202) && are_enabled_in(0x200));
        assert!(!are_enabled_in(0x002) && !are_enabled_in(!0x200));
    }
}
