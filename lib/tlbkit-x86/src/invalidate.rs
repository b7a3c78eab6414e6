//! INVLPG and INVPCID on one CPU; INVLPGB and TLBSYNC on all of them.
//!
//! INVLPGB (AMD) invalidates translations on every CPU without an interrupt. It is weakly ordered: it is complete only
//! once TLBSYNC has executed *on the same CPU*, so the caller must not migrate in between (C-36). The stride between
//! the pages of one instruction tells the CPU how large the translations are and never widens what is covered: some
//! CPUs, given a stride of 2 MiB over base pages, invalidate only the first base page of each 2 MiB.

use core::arch::asm;
use tlbkit::{Invpcid, Pcid, Scope, Stride, VirtAddr};

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
const STRIDE_2M: u32 = 1 << 31;

/// The count field of INVLPGB has 16 bits and holds the number of pages minus one.
const PAGES_MAX: u32 = 1 << 16;

/// The register operands of one INVLPGB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invlpgb {
    /// Address and flags.
    pub rax: u64,
    /// Number of pages minus one, and the stride.
    pub ecx: u32,
    /// PCID and ASID.
    pub edx: u32,
}

/// The limits of a CPU's INVLPGB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broadcast {
    /// Most pages that one instruction may name; CPUID reports one less. 0 counts as 1, and anything above 65,536 as
    /// 65,536, since the count field holds no more.
    pub pages_max: u32,
}

impl Broadcast {
    /// Calls `emit` with the instructions that invalidate, under `pcid`, `pages` translations of size `mapped` from
    /// `va` on. `mapped` must be the size of *every* translation in the range; a caller that does not know it passes
    /// [`Stride::Page4K`].
    pub fn plan(
        self,
        pcid: Pcid,
        va: VirtAddr,
        pages: u64,
        mapped: Stride,
        scope: Scope,
        mut emit: impl FnMut(Invlpgb),
    ) {
        // INVLPGB has no stride of 1 GiB, but any address inside a 1 GiB translation invalidates it.
        let (stride, stride_bit) = match mapped {
            Stride::Page4K => (Stride::Page4K, 0),
            Stride::Page2M => (Stride::Page2M, STRIDE_2M),
            Stride::Page1G => (Stride::Page1G, 0),
        };
        let most = if mapped == Stride::Page1G { 1 } else { u64::from(self.pages_max.clamp(1, PAGES_MAX)) };
        let global = if scope == Scope::Global { INCLUDE_GLOBAL } else { 0 };
        let (mut at, mut left) = (va.0 & !(stride.bytes() - 1), pages);
        while left > 0 {
            let count = left.min(most);
            let rax = at & !0xfff | VA_VALID | PCID_VALID | ASID_VALID | global;
            emit(Invlpgb { rax, ecx: (count - 1) as u32 | stride_bit, edx: u32::from(pcid.0) << 16 });
            at = at.wrapping_add(count * stride.bytes());
            left -= count;
        }
    }

    /// The instruction that invalidates everything tagged with `pcid`. Global translations are kept.
    #[must_use]
    pub const fn whole_pcid(pcid: Pcid) -> Invlpgb {
        Invlpgb { rax: PCID_VALID | ASID_VALID, ecx: 0, edx: (pcid.0 as u32) << 16 }
    }

    /// The instruction that invalidates everything, global translations included.
    #[must_use]
    pub const fn all_and_globals() -> Invlpgb {
        Invlpgb { rax: ASID_VALID | INCLUDE_GLOBAL, ecx: 0, edx: 0 }
    }
}

impl Invlpgb {
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
