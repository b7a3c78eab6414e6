//! CR2, CR3 and CR4, and the order in which tags are switched on and off; model-specific registers; the time-stamp
//! counter.

use core::arch::asm;
use tlbkit::{Cr3, Features, Pcid};

/// Global pages are kept across CR3 writes.
pub const CR4_PGE: u64 = 1 << 7;
/// Tags are in use.
pub const CR4_PCIDE: u64 = 1 << 17;

macro_rules! read {
    ($register:literal) => {{
        let value: u64;
        // SAFETY: ring 0, says the caller; reading changes nothing.
        unsafe { asm!(concat!("mov {}, ", $register), out(reg) value, options(nostack, preserves_flags)) }
        value
    }};
}

macro_rules! write {
    ($register:literal, $value:expr) => {
        // SAFETY: the caller's.
        unsafe { asm!(concat!("mov ", $register, ", {}"), in(reg) $value, options(nostack, preserves_flags)) }
    };
}

/// The address of the last page fault.
///
/// # Safety
/// Ring 0.
#[inline(always)]
#[must_use]
pub unsafe fn read_cr2() -> u64 {
    read!("cr2")
}

/// Root and tag; the CPU never shows the no-flush bit.
///
/// # Safety
/// Ring 0.
#[inline(always)]
#[must_use]
pub unsafe fn read_cr3() -> Cr3 {
    Cr3(read!("cr3"))
}

/// Loads root, tag and no-flush bit.
///
/// # Safety
/// Ring 0; the tables at the root map whatever runs next; the no-flush bit and a tag only while CR4.PCIDE is set.
#[inline(always)]
pub unsafe fn write_cr3(cr3: Cr3) {
    write!("cr3", cr3.0);
}

/// What the CPU may do.
///
/// # Safety
/// Ring 0.
#[inline(always)]
#[must_use]
pub unsafe fn read_cr4() -> u64 {
    read!("cr4")
}

/// Changes what the CPU may do.
///
/// # Safety
/// Ring 0; the manual's rules for each bit.
#[inline(always)]
pub unsafe fn write_cr4(value: u64) {
    write!("cr4", value);
}

/// Drops everything, all tags and globals: any change of CR4.PGE does.
///
/// # Safety
/// Ring 0, interrupts off: a handler in between would run without global pages, or lose a change of its own to CR4.
#[inline]
pub unsafe fn toggle_pge() {
    // SAFETY: ring 0, says the caller; only PGE changes, and changes back.
    unsafe {
        let cr4 = read_cr4();
        write_cr4(cr4 ^ CR4_PGE);
        write_cr4(cr4);
    }
}

/// Switches on what `wanted` asks for and returns what is on: call it once on each CPU before the protocol brings it
/// up.
///
/// The manual's order: CPUID has the feature (`wanted` comes from it), long mode, global pages, then the tag in CR3 is
/// 0, then PCIDE. Any other order faults, and an emulator without the feature may hang instead (C-33).
///
/// # Safety
/// Ring 0 of 64-bit mode, interrupts off; the kernel's tables stay mapped by the loaded root; `wanted` is at most what
/// this CPU has.
pub unsafe fn enable_tags(wanted: Features) -> Features {
    // SAFETY: the caller's; the root is loaded again as it is, under tag 0.
    unsafe {
        write_cr4(read_cr4() | CR4_PGE);
        match (wanted.pcid, read_cr4() & CR4_PCIDE != 0) {
            (true, false) => {
                write_cr3(Cr3::flushing(read_cr3().root(), Pcid::KERNEL));
                write_cr4(read_cr4() | CR4_PCIDE);
            }
            // An earlier stage has switched them on, and an erratum forbids them.
            (false, true) => disable_tags(),
            _ => {}
        }
        Features { pcid: read_cr4() & CR4_PCIDE != 0, ..wanted }
    }
}

/// Switches tags off again, as a kernel does before it hands the CPU to another: the clearing drops everything.
///
/// # Safety
/// As [`enable_tags`].
pub unsafe fn disable_tags() {
    // SAFETY: the caller's. Tag 0 first: the bits mean something else once PCIDE is clear.
    unsafe {
        write_cr3(Cr3::flushing(read_cr3().root(), Pcid::KERNEL));
        write_cr4(read_cr4() & !CR4_PCIDE);
    }
}

/// Reads model-specific register `index`.
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

/// Writes model-specific register `index`.
///
/// # Safety
/// Ring 0; the register exists and takes `value`; what it does is what the caller wants.
#[inline]
pub unsafe fn write_msr(index: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: the caller's.
    unsafe { asm!("wrmsr", in("ecx") index, in("eax") low, in("edx") high, options(nostack, preserves_flags)) }
}

/// The time-stamp counter.
#[inline(always)]
#[must_use]
pub fn now_cycles() -> u64 {
    // SAFETY: every x86-64 CPU has it, and no kernel that links this forbids it to itself.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_cr4_are_those_of_the_manual() {
        assert_eq!((CR4_PGE, CR4_PCIDE), (0x80, 0x2_0000));
    }
}
