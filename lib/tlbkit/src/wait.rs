//! Waiting for the answers, and what a sender does about CPUs that are late.
//!
//! INV-7: a waiting CPU answers others, so two senders never deadlock. It waits with interrupts on, because the CPU
//! that it waits for may itself wait for an interrupt of another kind. A CPU that was taken out while it was being
//! asked answers nobody; its sender withdraws the request, and [`Cpu::bring_up`] flushes whatever it missed:
//!
//! ```text
//!   sender (wait)                             CPU that leaves (offline)
//!   outbox[sender] := targets                 leave every space
//!   is my target absent? (Acquire)            answer what is there
//!   if so, clear its bit                      presence := absent (Release); reads no mailbox from here on
//!
//!                                             CPU that comes back (bring_up)
//!                                             clear its bits in all outboxes; leave all hints
//!                                             join the online CPUs; presence := kernel; fence; flush all; answer
//! ```
//! Both may clear the same bit, and neither reads the mailbox then, so the sender may use it again at once.
//!
//! A sender that was stopped by force while it asked must not forget its request: a target may be carrying it out.
//!
//! ```text
//!   sender (stopped, bring_up)                target (answer)
//!                                             my bit is set: read mailbox, carry it out ...
//!   outbox[sender] := 0
//!   write mailbox: the next request
//!   outbox[sender] := targets
//!                                             ... clear my bit: of a request that it has not seen
//! ```
//! So [`Cpu::bring_up`] ends the old request first: it asks again, for the sender may have stopped before its hint or
//! its interrupt, and waits.

use core::ops::Range;

use crate::addr::CpuId;
use crate::cpu_set::{AtomicCpuSet, each_cpu, first_cpu};
use crate::cpu_state::{Cpu, Presence, Tlb};
use crate::hardware::{Event, Hardware, Late};
use crate::sync::Ordering;

/// CPUs that have not answered, by name.
#[derive(Clone, Copy)]
pub struct Missing<'a>(AtomicCpuSet<'a>);

impl Missing<'_> {
    /// Calls `f` with each of them.
    pub fn each(&self, mut f: impl FnMut(CpuId)) {
        for (index, word) in self.0.words().iter().enumerate() {
            // Relaxed: a report; what it names may answer meanwhile.
            each_cpu(index, word.load(Ordering::Relaxed), &mut f);
        }
    }
}

impl Tlb<'_> {
    /// States that `cpu` has stopped by force and executes nothing until its [`Cpu::bring_up`], as after a crash.
    /// Whoever waits for it stops waiting; whoever flushes leaves it out. Not for a guest's CPU that its host has
    /// taken away for a while: it would go on where it was, with what it was not told of still in its TLB.
    ///
    /// If it was itself asking, its request stands until its `bring_up` returns, and the space that it was about must
    /// live so long. A lazy reference that it held where those are counted stays counted: that space's tables are never
    /// given back.
    ///
    /// If it was itself asking, and stopped between its hint and its interrupt, the hint stays in its target's inbox
    /// and no interrupt follows; the next sender counts on that interrupt and sends none. So a kernel that calls this
    /// must return [`Late::AskAgain`] from [`Hardware::late`].
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn declare_stopped(&self, cpu: CpuId) {
        // Release: as a CPU's own goodbye; partner is the Acquire in `tell`. Who still finds it there finds it absent.
        self.online().remove(cpu, Ordering::Release);
        // Release: as a CPU's own goodbye; partner is the Acquire in `withdraw` and `must_tell`.
        self.cpus[cpu.0 as usize].presence.store(Presence::ABSENT.0, Ordering::Release);
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Waits until every target, all of them named in `words` of the outbox, has answered; answers others meanwhile.
    ///
    /// # Panics
    /// If interrupts are off (INV-7).
    #[cold]
    pub(crate) fn wait(&self, words: Range<usize>) {
        assert!(self.hardware.irqs_enabled(), "waiting for other CPUs with interrupts off");
        self.wait_until_empty(words);
    }

    /// Waits until nobody is named in `words` of the outbox: the request is over.
    fn wait_until_empty(&self, words: Range<usize>) {
        let mut turns = 0;
        for (index, word) in self.tlb.matrix.outbox(self.id).words_at(words) {
            loop {
                // Acquire: partner is the Release with which a target clears its bit: its flush is over (C-60).
                let waited_for = word.load(Ordering::Acquire);
                if waited_for == 0 {
                    break;
                }
                self.hardware.event(Event::Waiting(first_cpu(index, waited_for)));
                self.hardware.with_irqs_off(|irqs| self.answer(irqs));
                self.hardware.relax();
                turns += 1;
                if turns >= self.hardware.patience_turns() {
                    turns = 0;
                    self.face_late();
                }
            }
        }
        self.state.is_sending.set(0);
    }

    /// Ends what this CPU was asking for when it was stopped; the diagram above. It answers nobody meanwhile: it is
    /// absent.
    pub(crate) fn end_request(&self) {
        self.missing().each(|cpu| {
            if !self.withdraw(cpu) {
                self.ask_again(cpu);
            }
        });
        self.wait_until_empty(0..self.tlb.matrix.outbox(self.id).words().len());
    }

    /// CPUs that have not answered this CPU's request yet: what a watchdog prints.
    #[must_use]
    pub fn missing(&self) -> Missing<'_> {
        Missing(self.tlb.matrix.outbox(self.id))
    }

    #[cold]
    fn face_late(&self) {
        self.missing().each(|cpu| {
            if !self.withdraw(cpu) && self.hardware.late(cpu) == Late::AskAgain {
                self.ask_again(cpu);
            }
        });
    }

    /// Takes back the request to a CPU that has left. False if it has not.
    fn withdraw(&self, cpu: CpuId) -> bool {
        // Acquire: partner is the Release of `offline`: that CPU reads this mailbox no more.
        let has_left = self.tlb.cpus[cpu.0 as usize].presence.load(Ordering::Acquire) == Presence::ABSENT.0;
        if has_left {
            // Relaxed: this CPU's own wait is all that reads the bit.
            self.tlb.matrix.outbox(self.id).remove(cpu, Ordering::Relaxed);
        }
        has_left
    }

    fn ask_again(&self, cpu: CpuId) {
        self.tlb.matrix.inbox(cpu).add_again(self.id);
        self.hardware.send_ipi(cpu);
    }

    /// Forgets what others asked of this CPU while it was away: it is about to flush everything. The hints stay: a
    /// sender that sets its bit from here on may have dropped its hint already, and will not drop it again. The answer
    /// that ends the return looks for them everywhere.
    pub(crate) fn forget_requests(&self) {
        for sender in 0..self.tlb.cpus.len() as u32 {
            // Relaxed: a sender that waits for the bit needs nothing of this CPU but that it flushes before it runs.
            self.tlb.matrix.outbox(CpuId(sender)).remove(self.id, Ordering::Relaxed);
        }
        self.tlb.matrix.inbox(self.id).look_everywhere();
    }
}
