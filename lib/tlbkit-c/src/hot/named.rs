//! What is hot, by names that the kernel defines: `tlbkit_k_*`, declared in the header under `TLBKIT_LINKED`.

use crate::hot::ipi;
use crate::ops::HardwareOps;
use crate::status::Status;

unsafe extern "C" {
    fn tlbkit_k_write_cr3(value: u64);
    fn tlbkit_k_invlpg(va: u64);
    fn tlbkit_k_invpcid(kind: u32, pcid: u32, va: u64);
    fn tlbkit_k_toggle_pge();
}

#[cfg(not(feature = "flags"))]
unsafe extern "C" {
    fn tlbkit_k_relax();
    fn tlbkit_k_irqs_enabled() -> bool;
    fn tlbkit_k_irqs_save() -> u64;
    fn tlbkit_k_irqs_restore(saved: u64);
}

/// Nothing: the linker has them.
pub(crate) struct Hot;

/// Calls of one function each.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $function:ident;)*) => {
        $(#[inline(always)]
        pub(crate) fn $name(&self, _cpu: u32 $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: a function of the kernel's, called as the header says.
            unsafe { $function($($argument),*) }
        })*
    };
}

#[allow(clippy::unused_self, reason = "a table of functions stands in its place in other builds")]
impl Hot {
    #[allow(clippy::unnecessary_wraps, reason = "as above")]
    pub(crate) const fn new(_table: &HardwareOps) -> Result<Self, Status> {
        Ok(Self)
    }

    calls! {
        write_cr3(value: u64) = tlbkit_k_write_cr3;
        invlpg(va: u64) = tlbkit_k_invlpg;
        invpcid(kind: u32, pcid: u32, va: u64) = tlbkit_k_invpcid;
        toggle_pge() = tlbkit_k_toggle_pge;
    }

    #[cfg(not(feature = "flags"))]
    calls! {
        relax() = tlbkit_k_relax;
        irqs_enabled() -> bool = tlbkit_k_irqs_enabled;
        irqs_save() -> u64 = tlbkit_k_irqs_save;
        irqs_restore(saved: u64) = tlbkit_k_irqs_restore;
    }

    #[inline(always)]
    pub(crate) fn send_ipi(&self, cpu: u32, to: u32) {
        ipi::send(cpu, to);
    }

    #[inline(always)]
    pub(crate) fn send_ipi_to_others(&self, cpu: u32) {
        ipi::send_to_others(cpu);
    }
}
