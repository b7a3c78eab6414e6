//! CPUs that come and go: bring-up, hot-plug, resume, and CPUs that are stopped by force.
//!
//! A CPU that is away uses no space, so flushes leave it out, and its bring-up flushes all that it may have missed. The
//! races with those who are just asking it are drawn in `wait.rs`.

use crate::addr::{CpuId, PhysAddr};
use crate::asid::{Asid, Slots};
use crate::cpu_state::Presence;
use crate::hardware::{Cr3, Hardware, IrqsOff, Pcid};
use crate::policy::Tags;
use crate::request::RING;
use crate::sync::{Ordering, fence};
use crate::tlb::{Cpu, Tlb, flag};

impl Tlb<'_> {
    /// States that `cpu` has stopped by force and executes nothing until its [`Cpu::bring_up`], as after a crash.
    /// Whoever waits for it stops waiting; whoever flushes leaves it out. Not for a guest's CPU that its host has
    /// taken away for a while: it would go on where it was, with what it was not told of still in its TLB.
    ///
    /// What it has loaded stays in its CR3, and a CPU that was parked with a jump to itself goes on fetching through
    /// it. The space no longer counts it, and may be freed. So it has loaded the kernel's tables before this call, or
    /// it comes back through a reset, as after a crash, and never touches memory by those tables again.
    ///
    /// If it was itself asking, its requests stand until its `bring_up` returns, and the spaces that they are about
    /// must live so long. A space that had ended, and that it held lazily or was just leaving, still counts it: that
    /// space is never said to be free, and its tables are never given back. Where lazy references are counted all
    /// along, so is one that ends later.
    ///
    /// If it was itself asking, and stopped between its hint and its interrupt, the hint stays in its responder's inbox
    /// and no interrupt follows; the next initiator counts on that interrupt and sends none, until its patience ends.
    /// So a kernel that calls this must not return [`Late::Wait`](crate::Late::Wait) from [`Hardware::late`].
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn declare_stopped(&self, cpu: CpuId) {
        // Release: as a CPU's own goodbye; partner is the Acquire in `others` of `ask.rs`. Who still finds it there
        // finds it absent.
        self.online().remove(cpu, Ordering::Release);
        // Release: as a CPU's own goodbye; partner is the Acquire in `withdraw` and `first_asked`.
        self.cpus[cpu.0 as usize].presence.store(Presence::ABSENT.0, Ordering::Release);
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Starts or restarts this CPU: first use, hot-plug, resume. Whatever its TLB held is unknown, so all of it goes.
    ///
    /// Until the call returns, as while it was away, the CPU must touch only what stays mapped: flushes leave it out.
    /// If requests of this CPU are outstanding, issued and not waited for or interrupted by a forced stop, the call
    /// waits for those that it asked: they must be able to take an interrupt.
    pub fn bring_up(&self, irqs: &IrqsOff) {
        self.assert_here();
        self.end_requests();
        self.state.kernel_tag_stale.set(1);
        if !self.presence().is_absent() {
            self.load_kernel(irqs); // resume: the space that was loaded is still owed what leaving it owes
        }
        let policy = self.tlb.policy();
        let has_tags = self.hardware.features().pcid && policy.tags != Tags::Off;
        if has_tags {
            self.state.slots.reset(policy.slots());
        } else {
            let is_simple = !self.has_flag(flag::SWITCH);
            let reset = if is_simple { Slots::reset_untagged } else { Slots::reset_untagged_with_work };
            reset(&self.state.slots);
            self.state.asid.set(Asid::ONLY.0);
        }
        self.state.cr3_mask.set(if has_tags { u64::MAX } else { !(1 << 63 | 0xfff) });
        self.state.keep_first.set(if has_tags { Cr3::keeping(PhysAddr(0), Asid(0).pcid()).0 } else { 0 });
        self.state.pending_user.set(u64::MAX);
        self.forget_requests();
        // Relaxed, both: ordered before the flush by the fence below.
        self.tlb.online().add(self.id, Ordering::Relaxed);
        self.set_presence(Presence::KERNEL, Ordering::Relaxed);
        // SeqCst: partner is the fence before a kernel flush reads the online CPUs: either the initiator finds this CPU
        // there, or the flush below comes after its PTE change.
        fence(Ordering::SeqCst);
        self.state.root.set(self.tlb.kernel_root.0);
        self.load_cr3(Cr3::flushing(self.tlb.kernel_root, Pcid::KERNEL));
        self.flush_all_and_globals(irqs);
        self.state.kernel_tag_stale.set(0);
        // An initiator may have found this CPU before its interrupts could arrive; the diagram is in `wait.rs`.
        self.answer_in_a_wait(irqs);
    }

    /// Takes this CPU out: from now on nobody waits for it, and [`bring_up`](Self::bring_up) must come before it runs
    /// again. Until then it must touch only what stays mapped.
    pub fn offline(&self, irqs: &IrqsOff) {
        self.load_kernel(irqs);
        self.state.slots.reset(1);
        // Release: the CPU has left every space before it leaves the set; partner is whoever reads the set.
        self.tlb.online().remove(self.id, Ordering::Release);
        self.answer_in_a_wait(irqs);
        // Release: no mailbox is read after it; partner is the Acquire in `withdraw`, diagram in `wait.rs`.
        self.set_presence(Presence::ABSENT, Ordering::Release);
    }

    /// Forgets what others asked of this CPU while it was away: it is about to flush everything. From here on nobody
    /// takes a request back from it; the diagram is in `wait.rs`. The hints stay: an initiator that sets its bit from
    /// here on may have left its hint already, and will not leave another. The answer that ends the return looks for
    /// them everywhere.
    ///
    /// Of a CPU that comes for the first time nobody can have asked anything, so it looks nowhere: a machine of n CPUs
    /// would take n times n looks to start. Its own presence tells it, since no store makes that new again:
    ///
    /// ```text
    ///   initiator (choose, then ask)            CPU that comes for the first time (bring_up)
    ///                                           is its presence new? if so, there is nothing to forget
    ///                                           join the online CPUs; presence := kernel; fence; flush all; answer
    ///   is it absent, or new?       (Acquire)
    ///   if neither: outbox := responders
    ///   leave a hint, interrupt
    /// ```
    /// Whoever sets its bit, or leaves it a hint, has read another presence than the new one. So has who asks everybody
    /// by one interrupt, since it has chosen each of them. This CPU stores that presence after it has looked at its
    /// own, so what is asked comes too late for any look, and is answered. One that stopped before it stored another
    /// presence was asked nothing either; once it is declared stopped it is absent, and looks.
    pub(crate) fn forget_requests(&self) {
        if self.presence() == Presence::NEW {
            return;
        }
        // Relaxed: ordered by the fence below.
        self.set_presence(Presence::RETURNING, Ordering::Relaxed);
        // SeqCst: partner is the fence in `withdraw`: either this CPU finds its bit, or the initiator finds that it
        // returns.
        fence(Ordering::SeqCst);
        for initiator in 0..self.tlb.cpus.len() as u32 {
            for slot in 0..RING {
                let outbox = self.tlb.matrix.outbox(CpuId(initiator), slot);
                // Relaxed, both: what this CPU did before it left is ordered by the fence above, and of what is to come
                // an initiator needs nothing but that it flushes before it runs. A bit that the look misses came too
                // late for the removal too, and is answered. The look saves an exchange for each pair of CPUs.
                if outbox.contains(self.id, Ordering::Relaxed) {
                    outbox.remove(self.id, Ordering::Relaxed);
                }
            }
        }
        self.tlb.matrix.inbox(self.id).look_everywhere();
    }
}
