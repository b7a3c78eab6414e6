//! CR2, CR3 and CR4, and the order in which tags are switched on and off.

use core::arch::asm;
use tlbkit::Features;

/// Global pages are kept across CR3 writes.
pub const CR4_PGE: u64 = 1 << 7;
/// Tags are in use.
pub const CR4_PCIDE: u64 = 1 << 17;
/// The tag in CR3.
const CR3_PCID: u64 = 0xfff;

macro_rules! control_register {
    ($(#[$doc:meta])* read $name:ident $register:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Ring 0.
        #[inline(always)]
        #[must_use]
        pub unsafe fn $name() -> u64 {
            let value;
            // SAFETY: ring 0, says the caller; reading changes nothing.
            unsafe { asm!(concat!("mov {}, ", $register), out(reg) value, options(nostack, preserves_flags)) }
            value
        }
    };
    ($(#[$doc:meta])* write $name:ident $register:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub unsafe fn $name(value: u64) {
            // SAFETY: the caller's.
            unsafe { asm!(concat!("mov ", $register, ", {}"), in(reg) value, options(nostack, preserves_flags)) }
        }
    };
}

control_register! {
    /// The address of the last page fault.
    read read_cr2 "cr2"
}
control_register! {
    /// Root and tag.
    read read_cr3 "cr3"
}
control_register! {
    /// What the CPU may do.
    read read_cr4 "cr4"
}
control_register! {
    /// Loads root, tag and no-flush bit.
    ///
    /// # Safety
    /// Ring 0; the tables at the root map whatever runs next; bit 63 and a tag only while CR4.PCIDE is set.
    write write_cr3 "cr3"
}
control_register! {
    /// Changes what the CPU may do.
    ///
    /// # Safety
    /// Ring 0; the manual's rules for each bit.
    write write_cr4 "cr4"
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
                write_cr3(read_cr3() & !CR3_PCID);
                write_cr4(read_cr4() | CR4_PCIDE);
            }
            // An earlier stage has switched them on, and an erratum forbids them.
            (false, true) => without_tags(),
            _ => {}
        }
        Features { pcid: read_cr4() & CR4_PCIDE != 0, ..wanted }
    }
}

/// Switches tags off again, as a kernel does before it hands the CPU to another: the clearing drops everything.
///
/// # Safety
/// As [`enable_tags`].
pub unsafe fn without_tags() {
    // SAFETY: the caller's. Tag 0 first: the bits mean something else once PCIDE is clear.
    unsafe {
        write_cr3(read_cr3() & !CR3_PCID);
        write_cr4(read_cr4() & !CR4_PCIDE);
    }
}
