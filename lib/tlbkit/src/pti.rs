//! The user half under page-table isolation: invalidated now, or by the CR3 write on the way out.
//!
//! While the kernel runs, CR3 names the kernel half under the slot's PCID; the user half lives one page above the
//! root, under the same PCID with bit 11. INVLPG reaches only the tag that is loaded, so each flush owes the user
//! half a second one. INV-10: it is paid by INVPCID at once, or by a bit in `pending_user` that makes the next
//! return to user mode under *that slot* a flushing one. The bit belongs to the slot and not to the CPU: it
//! survives any number of switches in between, and a recycled slot starts with it set.

use crate::addr::{PhysAddr, VirtAddr};
use crate::hardware::{Cr3, Hardware, Invpcid, IrqsOff};
use crate::policy::UserFlush;
use crate::tlb::{Cpu, flag};

/// Distance from the kernel half's top-level table to the user half's.
const USER_ROOT_OFFSET: u64 = 4096;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// On the way from user mode into the kernel: loads the kernel half. Nothing without isolation.
    #[inline]
    pub fn enter_kernel(&self, _irqs: &IrqsOff) {
        self.assert_here();
        if self.has_flag(flag::ISOLATED) {
            self.load_keeping(PhysAddr(self.state.root.get()), self.asid());
        }
    }

    /// On the way back to user mode: loads the user half, flushing it if anything is owed. Nothing without isolation.
    #[inline]
    pub fn exit_to_user(&self, _irqs: &IrqsOff) {
        self.assert_here();
        if !self.has_flag(flag::ISOLATED) {
            return;
        }
        let (asid, pending) = (self.asid(), self.state.pending_user.get());
        let root = PhysAddr(self.state.root.get() + USER_ROOT_OFFSET);
        let pcid = asid.pcid().user_half();
        if pending & 1 << asid.0 == 0 {
            self.load_cr3(Cr3::keeping(root, pcid));
        } else {
            self.state.pending_user.set(pending & !(1 << asid.0));
            self.load_cr3(Cr3::flushing(root, pcid));
        }
    }

    /// Makes the whole user half of the loaded slot stale.
    pub(crate) fn owe_user_half(&self) {
        self.state.pending_user.set(self.state.pending_user.get() | 1 << self.asid().0);
    }

    /// True if pages of the user half are to be invalidated one by one, now. They are not when a flush is owed anyway.
    pub(crate) fn flushes_user_pages_now(&self) -> bool {
        self.tlb.knobs().user_flush() == UserFlush::Invpcid
            && self.hardware.features().invpcid
            && self.state.cr3_mask.get() == u64::MAX
            && self.state.pending_user.get() & 1 << self.asid().0 == 0
    }

    pub(crate) fn flush_user_page(&self, va: VirtAddr) {
        self.hardware.invpcid(Invpcid::Address(self.asid().pcid().user_half(), va));
    }
}
