//! Model-specific registers.

use core::arch::asm;

/// Reads register `index`.
///
/// # Safety
/// Ring 0; the register exists.
#[inline]
#[must_use]
pub unsafe fn read_msr(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!("rdmsr", in("ecx") index, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes register `index`.
///
/// # Safety
/// Ring 0; the register exists and takes `value`; what it does is what the caller wants.
#[inline]
pub unsafe fn write_msr(index: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: the caller's.
    unsafe { asm!("wrmsr", in("ecx") index, in("eax") low, in("edx") high, options(nostack, preserves_flags)) }
}
