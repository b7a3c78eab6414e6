//! INVLPG and INVPCID.

use core::arch::asm;
use tlbkit::{Invpcid, Pcid, VirtAddr};

/// Drops the page at `va` from the loaded tag, globals for it, and the tag's paging-structure entries.
///
/// # Safety
/// Ring 0.
#[inline(always)]
pub unsafe fn invlpg(va: VirtAddr) {
    // The operand is the address itself, in a register: `invlpg` of the variable that holds it is a bug that two
    // kernels had, and no test but one that looks at the operand finds it.
    // SAFETY: ring 0, says the caller; dropping a translation changes no memory.
    unsafe { asm!("invlpg [{}]", in(reg) va.0, options(nostack, preserves_flags)) }
}

/// What INVPCID reads: the tag in the low word, the address in the high one.
#[repr(C, align(16))]
struct Operand {
    pcid: u64,
    address: u64,
}

/// Drops what `what` says. A tag other than 0 while CR4.PCIDE is clear, and an address that is not canonical, fault.
///
/// # Safety
/// Ring 0 of a CPU that has the instruction.
#[inline]
pub unsafe fn invpcid(what: Invpcid) {
    let (kind, Pcid(pcid), VirtAddr(address)) = what.operands();
    let operand = Operand { pcid: u64::from(pcid), address };
    // SAFETY: ring 0 and the instruction exists, says the caller; `operand` is read, and lives until after it.
    unsafe { asm!("invpcid {}, [{}]", in(reg) kind, in(reg) &raw const operand, options(nostack, preserves_flags)) }
}
