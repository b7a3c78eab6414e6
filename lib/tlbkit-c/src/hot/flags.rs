//! The interrupt flag and PAUSE, as instructions in the library's own code.

use tlbkit_x86::interrupts::{self, Interrupts};

use crate::hot::Hot;

#[allow(clippy::unused_self, reason = "a table of functions stands in its place in other builds")]
impl Hot {
    #[inline(always)]
    pub(crate) fn relax(&self, _cpu: u32) {
        core::hint::spin_loop();
    }

    #[inline(always)]
    pub(crate) fn irqs_enabled(&self, _cpu: u32) -> bool {
        interrupts::are_enabled()
    }

    #[inline(always)]
    pub(crate) fn irqs_save(&self, _cpu: u32) -> u64 {
        // SAFETY: ring 0, by the crate's contract.
        unsafe { interrupts::save_and_disable() as u64 }
    }

    #[inline(always)]
    pub(crate) fn irqs_restore(&self, _cpu: u32, saved: u64) {
        let before = if saved == Interrupts::Enabled as u64 { Interrupts::Enabled } else { Interrupts::Disabled };
        // SAFETY: ring 0, by the crate's contract; handlers are in place if interrupts were enabled.
        unsafe { interrupts::restore(before) }
    }
}
