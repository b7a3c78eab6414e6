//! CPUs that come online and go offline: boot, hotplug, resume, and CPUs that are stopped by force.
//!
//! **The rule.** A CPU that is offline uses no space, so flushes leave it out, and [`Cpu::bring_up`] flushes everything
//! that it may have missed. The races with initiators that are just sending it a request are drawn in `flush/wait.rs`.

use super::asid::Asid;
use super::state::Presence;
use super::{Cpu, Tlb};
use crate::addr::{CpuId, PhysAddr};
use crate::flush::request::MAILBOXES;
use crate::hardware::{Cr3, Hardware, IrqsOff, KernelFlushes, Pcid};
use crate::policy::Tags;
use crate::sync::{Ordering, fence};

impl Tlb<'_> {
    /// States that `cpu` was stopped by force and executes nothing until its [`Cpu::bring_up`], as after a crash.
    /// Initiators that wait for it stop waiting, and later flushes leave it out. Not for a virtual CPU that its host
    /// has preempted: that one would go on where it was, with stale entries in its TLB.
    ///
    /// What it has loaded stays in its CR3, and a CPU that was parked with a jump to itself goes on fetching through
    /// it. The space no longer counts that CPU, and may be freed. So the CPU has to load the kernel's page tables
    /// before this call, or to come back through a reset, as after a crash, and never touch memory by those page tables
    /// again.
    ///
    /// If it was itself an initiator, its requests stand until its `bring_up` returns, and the spaces that they are
    /// about must live so long. A space that had ended, and that it held lazily or was just leaving, still counts it:
    /// that space is never reported to be free, and its page tables are never given back. Where lazy references are
    /// counted all along, the same holds for a space that ends later.
    ///
    /// If it was stopped between leaving a hint and sending the IPI, the hint stays in its responder's inbox and no IPI
    /// follows; the next initiator counts on that IPI and sends none, until its patience ends. So a kernel that calls
    /// this must not return [`Late::Wait`](crate::Late::Wait) from [`Hardware::late`].
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn declare_stopped(&self, cpu: CpuId) {
        // Release: as when a CPU goes offline; partner is the Acquire load of the online CPUs in `others`. An
        // initiator that still finds it there finds it absent.
        self.online().remove(cpu, Ordering::Release);
        // Release: as when a CPU goes offline; partners are the Acquire loads in `is_offline` and `choose_by`.
        self.cpus[cpu.0 as usize].presence.store(Presence::ABSENT.0, Ordering::Release);
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Brings this CPU online: boot, hotplug, resume. What its TLB holds is unknown, so all of it is flushed.
    ///
    /// Until the call returns the CPU may touch only what stays mapped, as while it was offline: flushes leave it out.
    /// If requests of this CPU are outstanding, issued and not waited for or interrupted by a forced stop, the call
    /// waits for their responders, which must be able to take an interrupt.
    pub fn bring_up(&self, irqs: &IrqsOff) {
        self.assert_here();
        if self.hardware.kernel_flushes() == KernelFlushes::AtEntry {
            self.state.deferral.finish(); // one that was stopped in user mode has not entered, and is about to answer
        }
        self.end_requests();
        self.state.kernel_pcid_stale.set(1);
        if !self.presence().is_absent() {
            self.load_kernel(irqs); // resume: what is owed to the space that was loaded is still owed
        }
        if self.acknowledges_early() {
            self.state.owes_a_flush.set(0); // it was stopped after an acknowledgement, and before its flush
        }
        let policy = self.tlb.policy();
        let has_pcids = self.hardware.features().pcid && policy.tags != Tags::Off;
        if has_pcids {
            self.state.asids.reset(policy.asids());
        } else {
            self.state.asids.reset_without_pcid();
            self.state.asid.set(Asid::ONLY.0);
        }
        self.state.cr3_mask.set(if has_pcids { u64::MAX } else { !(1 << 63 | 0xfff) });
        self.state.keep_first.set(if has_pcids { Cr3::keeping(PhysAddr(0), Asid(0).pcid()).0 } else { 0 });
        self.state.pending_user.set(u64::MAX);
        self.forget_requests();
        // Relaxed, both: ordered before the flush by the fence below.
        self.tlb.online().add(self.id, Ordering::Relaxed);
        self.set_presence(Presence::KERNEL, Ordering::Relaxed);
        // SeqCst: partners are the fences in `announce` and `advance`, before a flush of kernel addresses or of global
        // entries reads the online CPUs: either the initiator finds this CPU there, or the flush below comes after its
        // PTE change.
        fence(Ordering::SeqCst);
        self.state.root.set(self.tlb.kernel_root.0);
        self.load_cr3(Cr3::flushing(self.tlb.kernel_root, Pcid::KERNEL));
        self.flush_all_and_globals(irqs);
        self.state.kernel_pcid_stale.set(0);
        // An initiator may have found this CPU before its IPI could arrive; the diagram is in `flush/wait.rs`.
        self.answer_out_of_line(irqs);
    }

    /// Takes this CPU offline: from now on nobody waits for it, and [`bring_up`](Self::bring_up) must come before it
    /// runs again. Until then it may touch only what stays mapped.
    pub fn offline(&self, irqs: &IrqsOff) {
        self.load_kernel(irqs);
        self.state.asids.reset_offline();
        // Release: the CPU has left every space before it leaves the set; partner is the Acquire load in
        // `others`.
        self.tlb.online().remove(self.id, Ordering::Release);
        self.answer_out_of_line(irqs);
        // Release: no mailbox is read after it; partner is the Acquire in `is_offline`, diagram in `flush/wait.rs`.
        self.set_presence(Presence::ABSENT, Ordering::Release);
    }

    /// Forgets the requests that were sent to this CPU while it was offline: it is about to flush everything. From here
    /// on nobody withdraws a request from it; the diagram is in `flush/wait.rs`. The hints stay: an initiator that sets
    /// this CPU's bit from here on may have left its hint already, and will not leave another. The answer that ends
    /// `bring_up` looks for hints everywhere.
    ///
    /// Nobody can have sent a request to a CPU that comes online for the first time, so it looks nowhere. Otherwise a
    /// machine of n CPUs would take n times n looks to boot. Its presence says that it is new, since no store writes
    /// that value again:
    ///
    /// ```text
    ///   initiator (send_requests)                 CPU that comes online for the first time (bring_up)
    ///                                             is its presence new? then there is nothing to forget
    ///                                             join the online CPUs; presence := kernel; fence; flush all; answer
    ///   is it absent, or new?       (Acquire)
    ///   if neither: outbox := responders
    ///   leave a hint, send the IPI
    /// ```
    /// An initiator that sets its bit, or leaves a hint, has read another presence than the new one; so has one that
    /// sends an IPI to all CPUs at once, since it has chosen each of them. This CPU stores that presence after it has
    /// looked at its own. So such a request comes too late for any look, and is answered. A CPU that stopped before it
    /// stored another presence was sent no request either; once it is declared stopped it is absent, and looks.
    pub(crate) fn forget_requests(&self) {
        if self.presence() == Presence::NEW {
            return;
        }
        // Release: as in `offline`, for an initiator that looks at its presence only now; partner is the Acquire load
        // in `choose_by`.
        self.set_presence(Presence::RETURNING, Ordering::Release);
        // SeqCst: partner is the fence in `withdraw`: either this CPU finds its bit, or the initiator finds that it is
        // coming online.
        fence(Ordering::SeqCst);
        for initiator in 0..self.tlb.cpus.len() as u32 {
            for mailbox in 0..MAILBOXES {
                let outbox = self.tlb.matrix.outbox(CpuId(initiator), mailbox);
                // Relaxed, both: what this CPU did before it went offline is ordered by the fence above, and of what is
                // to come an initiator needs nothing but that this CPU flushes before it runs. A bit that the look
                // misses came too late for the removal too, and is answered. The look saves an atomic read-modify-write
                // for each pair of CPUs.
                if outbox.contains(self.id, Ordering::Relaxed) {
                    outbox.remove(self.id, Ordering::Relaxed);
                }
            }
        }
        self.tlb.matrix.inbox(self.id).look_everywhere();
    }
}
