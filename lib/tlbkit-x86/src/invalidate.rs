//! INVLPG and INVPCID on one CPU; INVLPGB and TLBSYNC on all of them.
//!
//! INVLPGB (AMD) invalidates translations on every CPU without an interrupt. It is weakly ordered: it is complete only
//! once TLBSYNC has executed *on the same CPU*, so the caller must not migrate in between (C-36). The stride between
//! the pages of one instruction tells the CPU how large the translations are and never widens what is covered: some
//! CPUs, given a stride of 2 MiB over base pages, invalidate only the first base page of each 2 MiB.

use core::arch::asm;
use tlbkit::{Invlpgb, Invpcid, Pcid, Stride, Tables, VirtAddr};

/// Invalidates, under the current PCID, the translation of `va`, global ones included, and all entries of the
/// paging-structure caches.
///
/// # Safety
/// Ring 0.
#[inline(always)]
pub unsafe fn invlpg(va: VirtAddr) {
    // The operand is the address itself, in a register. Two kernels have shipped `invlpg` of the variable that holds
    // the address instead, and only a test that looks at the operand catches that.
    // SAFETY: ring 0, by the caller's contract; invalidating a translation changes no memory.
    unsafe { asm!("invlpg [{}]", in(reg) va.0, options(nostack, preserves_flags)) }
}

/// The memory operand of INVPCID: the PCID in the low word, the linear address in the high one.
#[repr(C, align(16))]
struct InvpcidOperand {
    pcid: u64,
    address: u64,
}

/// Executes INVPCID. It faults if the PCID is not 0 while CR4.PCIDE is clear, or if the address is not canonical.
///
/// # Safety
/// Ring 0 of a CPU that has the instruction.
#[inline]
pub unsafe fn invpcid(what: Invpcid) {
    let (kind, Pcid(pcid), VirtAddr(address)) = what.operands();
    let operand = InvpcidOperand { pcid: u64::from(pcid), address };
    // SAFETY: the caller guarantees ring 0 and the instruction; `operand` is only read, and outlives the instruction.
    unsafe { asm!("invpcid {}, [{}]", in(reg) kind, in(reg) &raw const operand, options(nostack, preserves_flags)) }
}

const VA_VALID: u64 = 1;
const PCID_VALID: u64 = 1 << 1;
/// Always set: without it the manual does not say which guests' translations are invalidated. ASID 0 is the host.
const ASID_VALID: u64 = 1 << 2;
const INCLUDE_GLOBAL: u64 = 1 << 3;
/// The cached paths to the pages may stay.
const FINAL_ONLY: u64 = 1 << 4;
const STRIDE_2M: u32 = 1 << 31;

/// The register operands of one INVLPGB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operands {
    /// Address and flags.
    pub rax: u64,
    /// Number of pages minus one, and the stride.
    pub ecx: u32,
    /// PCID and ASID.
    pub edx: u32,
}

impl Operands {
    /// Those by which the instruction invalidates `what`.
    ///
    /// # Panics
    /// If `what` names no page, or more than 65,536: the count field holds no more.
    #[must_use]
    pub const fn of(what: Invlpgb) -> Self {
        match what {
            Invlpgb::Pages { pcid, first, pages, stride, tables } => {
                let flags = PCID_VALID | if matches!(tables, Tables::Kept) { FINAL_ONLY } else { 0 };
                Self::of_pages(first, pages, stride, flags).with_pcid(pcid)
            }
            Invlpgb::PagesOfAll { first, pages, stride } => Self::of_pages(first, pages, stride, INCLUDE_GLOBAL),
            Invlpgb::Single(pcid) => Self::without_address(PCID_VALID).with_pcid(pcid),
            Invlpgb::All => Self::without_address(0),
            Invlpgb::AllAndGlobals => Self::without_address(INCLUDE_GLOBAL),
        }
    }

    const fn of_pages(first: VirtAddr, pages: u32, stride: Stride, flags: u64) -> Self {
        assert!(pages != 0 && pages <= 1 << 16, "INVLPGB of no page, or of more than its count holds");
        // It has no stride of 1 GiB, but any address inside a translation of 1 GiB invalidates that.
        let stride_bit = if matches!(stride, Stride::Page2M) { STRIDE_2M } else { 0 };
        let first = first.0 & !(stride.bytes() - 1);
        Self { rax: first | VA_VALID | ASID_VALID | flags, ecx: (pages - 1) | stride_bit, edx: 0 }
    }

    const fn without_address(flags: u64) -> Self {
        Self { rax: ASID_VALID | flags, ecx: 0, edx: 0 }
    }

    const fn with_pcid(self, pcid: Pcid) -> Self {
        Self { edx: (pcid.0 as u32) << 16, ..self }
    }

    /// Executes INVLPGB. The invalidation is complete on all CPUs only after [`tlbsync`] on this CPU.
    ///
    /// # Safety
    /// Ring 0 of a CPU that has the instruction, with no more pages than CPUID allows.
    #[inline]
    pub unsafe fn execute(self) {
        // Encoded by hand, because the oldest compiler that builds this crate has an assembler without the mnemonic.
        // SAFETY: the caller guarantees ring 0 and the instruction.
        unsafe {
            asm!(".byte 0x0f, 0x01, 0xfe", in("rax") self.rax, in("ecx") self.ecx, in("edx") self.edx,
                options(nostack, preserves_flags));
        }
    }
}

/// Waits until every INVLPGB that this CPU has executed is complete on all CPUs.
///
/// # Safety
/// Ring 0 of a CPU that has the instruction.
#[inline]
pub unsafe fn tlbsync() {
    // Also a compiler barrier: a store to memory that is freed after the TLBSYNC must not move before it.
    // SAFETY: the caller guarantees ring 0 and the instruction.
    unsafe { asm!(".byte 0x0f, 0x01, 0xff", options(nostack, preserves_flags)) }
}
