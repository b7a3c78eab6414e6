//! Waiting for the answers, and what an initiator does about CPUs that are late.
//!
//! INV-7: a waiting CPU answers others, so two initiators never deadlock. It waits with interrupts on, because the CPU
//! that it waits for may itself wait for an interrupt of another kind. A CPU that was taken out while it was being
//! asked answers nobody; its initiator withdraws the request, and [`Cpu::bring_up`] flushes whatever it missed:
//!
//! ```text
//!   initiator (wait)                          CPU that leaves (offline)
//!   outbox := responders                      leave every space
//!   has a responder left?  (Acquire)          answer what is there
//!   if so: fence; is it still away?           presence := absent (Release); reads no mailbox from here on
//!   if so, clear its bit
//!                                             CPU that comes back (bring_up)
//!                                             presence := returning; fence (neither, if it never was up)
//!                                             clear its bits in all outboxes; leave all hints
//!                                             join the online CPUs; presence := kernel; fence; flush all; answer
//! ```
//! Both may clear the same bit, and neither reads the mailbox then, so the initiator may use it again at once. Either
//! the CPU that comes back finds the bit, or the initiator finds it returning, and does not take the request back. If
//! it were just absent until it is in the kernel, one that was chosen before it left could be in the midst of its
//! answer when the request is taken back:
//!
//! ```text
//!   initiator (wait)                          CPU that comes back
//!                                             clear its bits in all outboxes
//!   outbox := responders
//!   has a responder left?
//!                                             presence := kernel; flush all; its bit is set: flush ...
//!   clear its bit: the flush is over
//!   change PTE; write the mailbox
//!   outbox := responders
//!                                             ... clear its bit: of a request that it has not seen
//! ```
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
//! So [`Cpu::bring_up`] ends the old requests first, in every mailbox: it asks again, for the initiator may have
//! stopped before its hint or its interrupt, and waits.
//!
//! Where the kernel says so ([`Hardware::glances`]), a wait begins with looks at the outbox alone. Interrupts are on
//! then, so the handler answers what others ask; and the looks are bounded, so INV-7 does not depend on that.
//!
//! A wait for answers is never silent. After [`Hardware::patience_turns`] it asks those who are late again, unless the
//! kernel says otherwise, so a lost interrupt costs time and nothing else. After [`Hardware::patience_rounds`] of that
//! it names them to [`Hardware::unanswered`], which panics unless the kernel does something better.

use crate::addr::CpuId;
use crate::cpu_set::{AtomicCpuSet, Missing, first_cpu};
use crate::hardware::{Event, Hardware, Late};
use crate::request::RING;
use crate::ring::Asked;
use crate::sync::{AtomicU64, Ordering};
use crate::tlb::Cpu;

/// How long a wait has taken.
#[derive(Default)]
pub(crate) struct Waited {
    turns: u32,
    /// Times at which the kernel's patience was over.
    rounds: u32,
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Waits until all that were asked by mailbox `slot` have answered: those in `words` of its outbox, the first of
    /// these at `start`. Answers others meanwhile.
    ///
    /// # Panics
    /// If interrupts are off (INV-7).
    #[inline(always)]
    pub(crate) fn wait(&self, slot: usize, start: usize, words: &[AtomicU64]) {
        self.assert_may_wait();
        self.wait_until_empty(slot, start, words);
        self.assert_here();
    }

    #[inline(always)]
    fn assert_may_wait(&self) {
        assert!(self.hardware.irqs_enabled(), "waiting for other CPUs with interrupts off");
    }

    /// Waits until nobody is named in `words` of the outbox of mailbox `slot`, the first of them at `start`: its
    /// request is over.
    #[inline(always)]
    fn wait_until_empty(&self, slot: usize, start: usize, words: &[AtomicU64]) {
        let mut waited = Waited::default();
        for (word, index) in words.iter().zip(start..) {
            // Acquire: partner is the Release with which a responder clears its bit: its flush is over (C-60).
            let mut late = word.load(Ordering::Acquire);
            for _ in 0..self.hardware.glances() {
                if late == 0 {
                    break;
                }
                self.hardware.relax();
                late = word.load(Ordering::Acquire); // Acquire: as above
            }
            if late != 0 {
                self.wait_for_late(slot, index, word, late, &mut waited);
            }
        }
    }

    /// The same for one `word`, the one at `index`, where `late` have not answered yet.
    #[cold]
    #[inline(never)]
    fn wait_for_late(&self, slot: usize, index: usize, word: &AtomicU64, mut late: u64, waited: &mut Waited) {
        while late != 0 {
            self.wait_a_turn(first_cpu(index, late), waited, || self.missing(), || self.face_late(slot));
            // Acquire: as in `wait_until_empty`.
            late = word.load(Ordering::Acquire);
        }
    }

    /// One turn of a wait for `late` and perhaps others, all of them among those that `missing` names; `face_late` is
    /// called when the kernel's patience is over.
    #[inline(always)]
    fn wait_a_turn<'a>(
        &self,
        late: CpuId,
        waited: &mut Waited,
        missing: impl Fn() -> Missing<'a>,
        face_late: impl Fn(),
    ) {
        self.hardware.event(Event::Waiting(late));
        self.hardware.with_irqs_off(|irqs| self.answer_in_a_wait(irqs));
        self.hardware.relax();
        waited.turns += 1;
        if waited.turns >= self.hardware.patience_turns() {
            (waited.turns, waited.rounds) = (0, waited.rounds + 1);
            face_late();
            if waited.rounds >= self.hardware.patience_rounds() {
                waited.rounds = 0;
                self.report(missing());
            }
        }
    }

    /// All patience is at its end: whoever is missing still is named.
    #[cold]
    fn report(&self, missing: Missing<'_>) {
        let mut is_anybody = false;
        missing.each(|_| is_anybody = true);
        if is_anybody {
            self.hardware.unanswered(missing);
        }
    }

    /// Waits until a request that was issued is over, here or on another CPU; answers others meanwhile.
    ///
    /// # Panics
    /// If interrupts are off (INV-7); inside the wait of another flush.
    #[cold]
    pub(crate) fn wait_for(&self, asked: &Asked) {
        self.assert_here();
        self.assert_may_wait();
        self.assert_not_inside_another();
        self.state.is_waiting.set(1);
        let mut waited = Waited::default();
        while let Some(late) = self.first_missing(asked) {
            self.wait_a_turn_for(asked, late, &mut waited);
        }
        if asked.cpu == self.id {
            self.is_free(asked.slot());
        }
        self.state.is_waiting.set(0);
        self.assert_here();
        self.hardware.event(Event::FlushEnd);
    }

    fn outbox_of(&self, asked: &Asked) -> AtomicCpuSet<'_> {
        self.tlb.matrix.outbox(asked.cpu, asked.slot())
    }

    /// Waits until one of this CPU's mailboxes can be written; answers others meanwhile.
    ///
    /// # Panics
    /// If interrupts are off (INV-7).
    #[cold]
    pub(crate) fn wait_for_slot(&self) -> usize {
        self.assert_may_wait();
        let mut waited = Waited::default();
        loop {
            if let Some(slot) = self.find_free_slot() {
                return slot;
            }
            self.wait_a_turn_for_any(&mut waited);
        }
    }

    /// One turn of a wait for any request of this CPU's to end. Returns at once if nobody is missing.
    #[cold]
    pub(crate) fn wait_a_turn_for_any(&self, waited: &mut Waited) {
        let Some(late) = self.missing().last_asked() else { return };
        let face_late = || (0..RING).for_each(|slot| self.face_late(slot));
        self.wait_a_turn(late, waited, || self.missing(), face_late);
    }

    /// One turn of a wait for `asked`, with interrupts on or off. Returns at once if nobody is missing.
    #[cold]
    pub(crate) fn poll_a_turn(&self, asked: &Asked, waited: &mut Waited) {
        if let Some(late) = self.first_missing(asked) {
            self.wait_a_turn_for(asked, late, waited);
        }
    }

    /// One turn of a wait for `asked`, which may be another CPU's; `late` is one CPU that has not answered it.
    fn wait_a_turn_for(&self, asked: &Asked, late: CpuId, waited: &mut Waited) {
        let missing = || Missing { first: self.outbox_of(asked), others: &[], attendance: &self.tlb.cpus };
        self.wait_a_turn(late, waited, missing, || self.face_late_elsewhere(asked));
    }

    /// # Panics
    /// If this CPU is in the midst of a flush, and so an interrupt handler wants another.
    #[inline(always)]
    pub(crate) fn assert_not_inside_another(&self) {
        assert!(self.state.is_waiting.get() == 0, "a flush inside the wait of another: flushes are not for interrupts");
    }

    /// Ends what this CPU was asking for before it went away; the diagram above. It answers nobody meanwhile: it is
    /// absent.
    pub(crate) fn end_requests(&self) {
        for slot in 0..RING {
            let outbox = self.tlb.matrix.outbox(self.id, slot);
            outbox.each(|cpu| {
                if !self.withdraw(slot, cpu) {
                    self.ask_again(self.id, cpu);
                }
            });
            self.wait_until_empty(slot, 0, outbox.words());
            self.is_free(slot);
        }
        self.state.is_waiting.set(0);
    }

    /// CPUs that have not answered a request of this CPU's yet, be it waited for or issued: what a watchdog prints.
    #[must_use]
    pub fn missing(&self) -> Missing<'_> {
        self.tlb.matrix.missing(self.id, &self.tlb.cpus)
    }

    /// What to do about those that have not answered what is in mailbox `slot`.
    #[cold]
    fn face_late(&self, slot: usize) {
        self.tlb.matrix.outbox(self.id, slot).each(|cpu| {
            if !self.withdraw(slot, cpu) {
                self.face(self.id, cpu);
            }
        });
    }

    /// What to do about those that have not answered `asked`, which may be another CPU's: nothing is withdrawn.
    #[cold]
    fn face_late_elsewhere(&self, asked: &Asked) {
        self.outbox_of(asked).each(|cpu| {
            if !self.has_left(cpu) {
                self.face(asked.cpu, cpu);
            }
        });
    }

    /// What to do about `cpu`, which is late with an answer to `initiator`.
    fn face(&self, initiator: CpuId, cpu: CpuId) {
        if self.hardware.late(cpu) == Late::AskAgain {
            self.ask_again(initiator, cpu);
        }
    }

    /// Asks `cpu` again for `initiator`, which may be another one: a hint in vain is harmless.
    fn ask_again(&self, initiator: CpuId, cpu: CpuId) {
        self.tlb.matrix.inbox(cpu).leave_hint_again(initiator);
        if cpu != self.id {
            self.hardware.send_ipi(cpu); // itself it answers at each turn of the wait
        }
    }
}
