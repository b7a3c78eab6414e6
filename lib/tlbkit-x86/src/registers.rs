//! CR2, CR3 and CR4, and the order in which PCIDs are enabled and disabled; model-specific registers; the time-stamp
//! counter.

use core::arch::asm;
use tlbkit::{Cr3, Features, Pcid};

/// CR4.PGE: global translations survive CR3 writes.
pub const CR4_PGE: u64 = 1 << 7;
/// CR4.PCIDE: translations are tagged with the PCID in CR3.
pub const CR4_PCIDE: u64 = 1 << 17;

macro_rules! read {
    ($register:literal) => {{
        let value: u64;
        // SAFETY: ring 0, by the caller's contract; reading the register changes nothing.
        unsafe { asm!(concat!("mov {}, ", $register), out(reg) value, options(nostack, preserves_flags)) }
        value
    }};
}

macro_rules! write {
    ($register:literal, $value:expr) => {
        // SAFETY: by the caller's contract.
        unsafe { asm!(concat!("mov ", $register, ", {}"), in(reg) $value, options(nostack, preserves_flags)) }
    };
}

/// CR2: the address of the last page fault.
///
/// # Safety
/// Ring 0.
#[inline(always)]
#[must_use]
pub unsafe fn read_cr2() -> u64 {
    read!("cr2")
}

/// CR3: root and PCID. The no-flush bit always reads as 0.
///
/// # Safety
/// Ring 0.
#[inline(always)]
#[must_use]
pub unsafe fn read_cr3() -> Cr3 {
    Cr3(read!("cr3"))
}

/// Writes CR3: root, PCID and no-flush bit.
///
/// # Safety
/// Ring 0; the tables at the root map the code that runs next; the no-flush bit and a PCID other than 0 only while
/// CR4.PCIDE is set.
#[inline(always)]
pub unsafe fn write_cr3(cr3: Cr3) {
    write!("cr3", cr3.0);
}

/// CR4.
///
/// # Safety
/// Ring 0.
#[inline(always)]
#[must_use]
pub unsafe fn read_cr4() -> u64 {
    read!("cr4")
}

/// Writes CR4.
///
/// # Safety
/// Ring 0; the manual's rules for each bit that changes.
#[inline(always)]
pub unsafe fn write_cr4(value: u64) {
    write!("cr4", value);
}

/// Invalidates everything, under all PCIDs and global translations included, as any change of CR4.PGE does.
///
/// # Safety
/// Ring 0, interrupts off: a handler in between would run without global pages, and any change that it made to
/// CR4 would be lost.
#[inline]
pub unsafe fn toggle_pge() {
    // SAFETY: ring 0, by the caller's contract; only PGE changes, and is restored.
    unsafe {
        let cr4 = read_cr4();
        write_cr4(cr4 ^ CR4_PGE);
        write_cr4(cr4);
    }
}

/// Enables global pages and, if `wanted` says so, PCIDs, and returns the features that are in use. Call it once on each
/// CPU, before the protocol brings that CPU up.
///
/// The order is the manual's: CPUID reports PCIDs (`wanted` comes from CPUID), the CPU is in long mode, CR4.PGE is set,
/// the PCID in CR3 is 0, and only then CR4.PCIDE is set. Any other order faults, and an emulator that lacks PCIDs may
/// hang instead (C-33).
///
/// # Safety
/// Ring 0 of 64-bit mode, interrupts off; the loaded root keeps mapping the kernel; `wanted` names no feature that this
/// CPU lacks.
pub unsafe fn enable_pcids(wanted: Features) -> Features {
    // SAFETY: by the caller's contract; the loaded root is written back, under PCID 0.
    unsafe {
        write_cr4(read_cr4() | CR4_PGE);
        match (wanted.pcid, read_cr4() & CR4_PCIDE != 0) {
            (true, false) => {
                write_cr3(Cr3::flushing(read_cr3().root(), Pcid::KERNEL));
                write_cr4(read_cr4() | CR4_PCIDE);
            }
            // The boot loader or an earlier kernel has enabled PCIDs, and an erratum rules them out.
            (false, true) => disable_pcids(),
            _ => {}
        }
        Features { pcid: read_cr4() & CR4_PCIDE != 0, ..wanted }
    }
}

/// Disables PCIDs, as a kernel does before it hands the CPU to another one. Clearing CR4.PCIDE invalidates everything.
///
/// # Safety
/// As [`enable_pcids`].
pub unsafe fn disable_pcids() {
    // SAFETY: by the caller's contract. PCID 0 first: with PCIDE clear, those bits of CR3 have another meaning.
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
    // SAFETY: by the caller's contract.
    unsafe {
        asm!("rdmsr", in("ecx") index, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes model-specific register `index`.
///
/// # Safety
/// Ring 0; the register exists and accepts `value`; the caller is responsible for its effect.
#[inline]
pub unsafe fn write_msr(index: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: by the caller's contract.
    unsafe { asm!("wrmsr", in("ecx") index, in("eax") low, in("edx") high, options(nostack, preserves_flags)) }
}

/// Reads the time-stamp counter. Not serializing.
#[inline(always)]
#[must_use]
pub fn now_cycles() -> u64 {
    // SAFETY: every x86-64 CPU has RDTSC, and CR4.TSD never restricts it in ring 0.
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
