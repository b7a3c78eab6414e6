//! The user half under page-table isolation (PTI): flushed at once by INVPCID, or by the CR3 write on the way out.
//!
//! While the kernel runs, CR3 names the kernel half under the ASID's kernel PCID. The user half's top-level table is
//! one page above the kernel half's, and has the user PCID, which differs in bit 11. INVLPG reaches only the PCID that
//! is loaded, so each flush of the kernel half has to be repeated for the user half.
//!
//! **The rule**, INV-10: both halves are flushed before the next user instruction. Either INVPCID does it at once, or a
//! bit in `pending_user` makes the next return to user mode under *that ASID* a flushing one. The bit belongs to the
//! ASID, not to the CPU: it survives any number of switches in between, and a recycled ASID starts with it set.

use crate::addr::{PhysAddr, VirtAddr};
use crate::cpu::{Cpu, flag};
use crate::hardware::{Cr3, Hardware, Invpcid, IrqsOff};
use crate::policy::UserFlush;

/// Distance from the kernel half's top-level table to the user half's.
const USER_ROOT_OFFSET: u64 = 4096;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// On the way from user mode into the kernel: loads the kernel half. Does nothing without isolation.
    #[inline]
    pub fn enter_kernel(&self, _irqs: &IrqsOff) {
        self.assert_here();
        if self.has_flag(flag::ISOLATED) {
            self.load_keeping(PhysAddr(self.state.root.get()), self.asid());
        }
    }

    /// On the way back to user mode: loads the user half, and flushes it if that was deferred. Does nothing without
    /// isolation.
    #[inline]
    pub fn exit_to_user(&self, _irqs: &IrqsOff) {
        self.assert_here();
        if !self.has_flag(flag::ISOLATED) {
            return;
        }
        let (asid, pending) = (self.asid(), self.state.pending_user.get());
        let root = PhysAddr(self.state.root.get() + USER_ROOT_OFFSET);
        let pcid = asid.pcid().user_half();
        if !self.is_user_flush_deferred() {
            self.load_cr3(Cr3::keeping(root, pcid));
        } else {
            self.state.pending_user.set(pending & !(1 << asid.0));
            self.load_cr3(Cr3::flushing(root, pcid));
        }
    }

    /// True if the whole user half of the loaded ASID is flushed at the next return to user mode.
    #[inline(always)]
    fn is_user_flush_deferred(&self) -> bool {
        let asid = self.asid();
        !(self.has_broadcast() && asid.is_shared()) && self.state.pending_user.get() & 1 << asid.0 != 0
    }

    /// Has the whole user half of the loaded ASID flushed at the next return to user mode. That of a PCID that all CPUs
    /// share is flushed now: there is no bit for it.
    pub(crate) fn defer_user_flush(&self) {
        let asid = self.asid();
        if self.has_broadcast() && asid.is_shared() {
            return self.flush_shared_user_half(asid);
        }
        self.state.pending_user.set(self.state.pending_user.get() | 1 << asid.0);
    }

    /// True if pages of the user half are flushed one by one, now. They are not if all of it is flushed later anyway.
    pub(crate) fn flushes_user_pages_now(&self) -> bool {
        self.tlb.knobs().user_flush() == UserFlush::Invpcid
            && self.hardware.features().invpcid
            && self.state.cr3_mask.get() == u64::MAX
            && !self.is_user_flush_deferred()
    }

    pub(crate) fn flush_user_page(&self, va: VirtAddr) {
        self.hardware.invpcid(Invpcid::Address(self.asid().pcid().user_half(), va));
    }
}
