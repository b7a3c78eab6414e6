//! INVLPG and INVPCID.

use core::arch::asm;
use tlbkit::{Invpcid, Pcid, Scope, Stride, VirtAddr};

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

const VA_VALID: u64 = 1;
const PCID_VALID: u64 = 1 << 1;
/// Always set: without it the manual leaves open which guests are meant. ASID 0 is the host's own.
const ASID_VALID: u64 = 1 << 2;
const INCLUDE_GLOBAL: u64 = 1 << 3;
const STEP_2M: u32 = 1 << 31;

/// Most pages that one instruction can name: the count has 16 bits and begins at 0.
const PAGES_MAX: u32 = 1 << 16;

/// The registers of one INVLPGB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Address and flags.
    pub rax: u64,
    /// Pages beyond the first, and the step.
    pub ecx: u32,
    /// PCID and ASID.
    pub edx: u32,
}

/// How a CPU's INVLPGB may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broadcast {
    /// Most pages of one instruction: CPUID says one less. 0 is taken for 1, and what the count cannot hold for 65,536.
    pub pages_max: u32,
}

impl Broadcast {
    /// Hands to `each` the instructions that drop, in the tag `pcid`, `pages` translations of size `mapped` from `va`
    /// on. `mapped` is the size of *every* translation there; who does not know it says [`Stride::Page4K`].
    pub fn plan(
        self,
        pcid: Pcid,
        va: VirtAddr,
        pages: u64,
        mapped: Stride,
        scope: Scope,
        mut each: impl FnMut(Descriptor),
    ) {
        // There is no step of 1 GiB; such a translation goes with any address inside it.
        let (step, step_bit) = match mapped {
            Stride::Page4K => (Stride::Page4K, 0),
            Stride::Page2M => (Stride::Page2M, STEP_2M),
            Stride::Page1G => (Stride::Page1G, 0),
        };
        let most = if mapped == Stride::Page1G { 1 } else { u64::from(self.pages_max.clamp(1, PAGES_MAX)) };
        let global = if scope == Scope::Global { INCLUDE_GLOBAL } else { 0 };
        let (mut at, mut left) = (va.0 & !(step.bytes() - 1), pages);
        while left > 0 {
            let count = left.min(most);
            let rax = at & !0xfff | VA_VALID | PCID_VALID | ASID_VALID | global;
            each(Descriptor { rax, ecx: (count - 1) as u32 | step_bit, edx: u32::from(pcid.0) << 16 });
            at = at.wrapping_add(count * step.bytes());
            left -= count;
        }
    }

    /// The instruction that drops all of `pcid`, globals kept.
    #[must_use]
    pub const fn whole_tag(pcid: Pcid) -> Descriptor {
        Descriptor { rax: PCID_VALID | ASID_VALID, ecx: 0, edx: (pcid.0 as u32) << 16 }
    }

    /// The instruction that drops everything, globals too.
    #[must_use]
    pub const fn all_and_globals() -> Descriptor {
        Descriptor { rax: ASID_VALID | INCLUDE_GLOBAL, ecx: 0, edx: 0 }
    }
}

impl Descriptor {
    /// INVLPGB; it has happened everywhere only after [`tlbsync`] on this CPU.
    ///
    /// # Safety
    /// Ring 0 of a CPU that has the instruction, for at most the pages that CPUID allows.
    #[inline]
    pub unsafe fn execute(self) {
        // By bytes: assemblers that know the mnemonic are younger than the oldest compiler that builds this.
        // SAFETY: ring 0 and the instruction exists, says the caller.
        unsafe {
            asm!(".byte 0x0f, 0x01, 0xfe", in("rax") self.rax, in("ecx") self.ecx, in("edx") self.edx,
                options(nostack, preserves_flags));
        }
    }
}

/// Waits until every INVLPGB of this CPU has happened on all of them.
///
/// # Safety
/// Ring 0 of a CPU that has the instruction.
#[inline]
pub unsafe fn tlbsync() {
    // A barrier for the compiler too: what is freed after it must not be stored to before it.
    // SAFETY: ring 0 and the instruction exists, says the caller.
    unsafe { asm!(".byte 0x0f, 0x01, 0xff", options(nostack, preserves_flags)) }
}
