//! Waiting for the answers, and what an initiator does about CPUs that are late.
//!
//! INV-7: a waiting CPU answers others, so two initiators never deadlock. It waits with interrupts on, because the CPU
//! that it waits for may itself wait for an interrupt of another kind. A CPU that was taken out while it was being
//! asked answers nobody; its initiator withdraws the request, and [`Cpu::bring_up`] flushes whatever it missed:
//!
//! ```text
//!   initiator (wait)                          CPU that leaves (offline)
//!   outbox := responders                      leave every space
//!   is a responder absent? (Acquire)          answer what is there
//!   if so, clear its bit                      presence := absent (Release); reads no mailbox from here on
//!
//!                                             CPU that comes back (bring_up)
//!                                             clear its bits in all outboxes; leave all hints
//!                                             join the online CPUs; presence := kernel; fence; flush all; answer
//! ```
//! Both may clear the same bit, and neither reads the mailbox then, so the initiator may use it again at once.
//!
//! An initiator that was stopped by force while it asked must not forget its request: a responder may be carrying it
//! out.
//!
//! ```text
//!   initiator (stopped, bring_up)             responder (answer)
//!                                             its bit is set: read the mailbox, flush ...
//!   outbox := 0
//!   write the mailbox: the next request
//!   outbox := responders
//!                                             ... clear its bit: of a request that it has not seen
//! ```
//! So [`Cpu::bring_up`] ends the old request first: it asks again, for the initiator may have stopped before its hint
//! or its interrupt, and waits.

use core::ops::Range;

use crate::addr::CpuId;
use crate::cpu_set::{AtomicCpuSet, each_cpu, first_cpu};
use crate::cpu_state::Presence;
use crate::hardware::{Event, Hardware, Late};
use crate::sync::Ordering;
use crate::tlb::Cpu;

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

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Waits until every responder, all of them named in `words` of the outbox, has answered; answers others meanwhile.
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
                // Acquire: partner is the Release with which a responder clears its bit: its flush is over (C-60).
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
        self.state.is_waiting.set(0);
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
        self.tlb.matrix.inbox(cpu).leave_hint_again(self.id);
        self.hardware.send_ipi(cpu);
    }
}
