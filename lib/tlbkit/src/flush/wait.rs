//! Waiting for the answers, and what an initiator does about CPUs that are late or go offline.
//!
//! **The rule**, INV-7: a waiting CPU answers other CPUs, so two initiators never deadlock. It waits with interrupts
//! on, because the CPU that it waits for may itself wait for an IPI of another kind.
//!
//! **Hotplug.** A CPU that goes offline while a request is sent to it answers nobody. Its initiator withdraws the
//! request, and [`Cpu::bring_up`] flushes whatever that CPU missed:
//!
//! ```text
//!   initiator (wait)                               CPU that goes offline (offline)
//!   outbox := responders                           leave every space
//!   is a responder offline?   (Acquire)            answer what is there
//!   if so: fence; is it still offline?             presence := absent (Release); reads no mailbox from here on
//!   if so, clear its bit
//!                                                  CPU that comes online (bring_up)
//!                                                  presence := returning; fence (neither, if it never was online)
//!                                                  clear its bits in all outboxes; leave all hints
//!                                                  join the online CPUs; presence := kernel; fence; flush all; answer
//! ```
//! Both may clear the same bit, and neither reads the mailbox then, so the initiator may use it again at once. Either
//! the CPU that comes online finds its bit, or the initiator finds it returning and does not withdraw the request.
//! Without the presence `returning`, this could happen: a CPU that was chosen before it went offline is in the middle
//! of its answer when the request is withdrawn.
//!
//! ```text
//!   initiator (wait)                               CPU that comes online
//!                                                  clear its bits in all outboxes
//!   outbox := responders
//!   is a responder offline?
//!                                                  presence := kernel; flush all; its bit is set: flush ...
//!   clear its bit: the flush is over
//!   change the PTE; write the mailbox
//!   outbox := responders
//!                                                  ... clear its bit: of a request that it has not seen
//! ```
//!
//! **An initiator that was stopped by force** must not forget its requests: a responder may be carrying one out. If it
//! forgot them, this could happen:
//!
//! ```text
//!   initiator (stopped, bring_up)                  responder (answer)
//!                                                  its bit is set: read the mailbox, flush ...
//!   outbox := 0
//!   write the mailbox: the next request
//!   outbox := responders
//!                                                  ... clear its bit: of a request that it has not seen
//! ```
//! So [`Cpu::bring_up`] ends the old requests first, in every mailbox. It sends them again, since the CPU may have
//! stopped before it left its hint or sent its IPI, and waits.
//!
//! **Late CPUs.** A wait is never silent. After [`Hardware::patience_turns`] it sends another IPI to the responders
//! that are late, unless the kernel says otherwise, so a lost IPI costs time and nothing else. After
//! [`Hardware::patience_rounds`] of that it names them to [`Hardware::unanswered`], which panics unless the kernel does
//! something better. A destroyer that waits for the end of a switch (`space/end.rs`) has the same patience.

use core::slice;

use super::mailboxes::{Issued, Responders};
use super::request::MAILBOXES;
use crate::addr::CpuId;
use crate::cpu::Cpu;
use crate::hardware::{Event, Hardware, Late};
use crate::space::cpu_set::{AtomicCpuSet, Missing, Owes, first_cpu, split};
use crate::sync::{AtomicU64, Ordering};

/// What is waited for.
enum Awaited<'i> {
    /// The request in this mailbox of this CPU.
    Mailbox(usize),
    /// Any request of this CPU, since it needs a free mailbox.
    FreeMailbox,
    /// A request that was issued, maybe by another CPU.
    Issued(&'i Issued),
}

/// How long a wait has taken.
#[derive(Default)]
pub(crate) struct Waited {
    turns: u32,
    /// How often the kernel's patience was over.
    rounds: u32,
}

impl Waited {
    /// Counts a turn. True once in every [`Hardware::patience_turns`] turns.
    fn is_turn_late(&mut self, hardware: &impl Hardware) -> bool {
        self.turns += 1;
        let is_late = self.turns >= hardware.patience_turns();
        if is_late {
            (self.turns, self.rounds) = (0, self.rounds + 1);
        }
        is_late
    }

    /// True once in every [`Hardware::patience_rounds`] rounds: those who are missing are given up then.
    fn has_timed_out(&mut self, hardware: &impl Hardware) -> bool {
        let has_timed_out = self.rounds >= hardware.patience_rounds();
        if has_timed_out {
            self.rounds = 0;
        }
        has_timed_out
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// 4. Waits until all `responders` of the request in this mailbox have answered. Answers other CPUs meanwhile.
    #[inline(always)]
    pub(crate) fn wait(&self, mailbox: usize, responders: &Responders<'_>) {
        let mut waited = Waited::default();
        for (word, index) in responders.words.iter().zip(responders.start..) {
            // Acquire: partner is the Release with which a responder clears its bit: its flush is over (C-60).
            let mut late = word.load(Ordering::Acquire);
            // Where the kernel says so, the wait begins with a few looks at the outbox alone. Interrupts are on (or
            // this CPU is absent, in `bring_up`), so the handler answers other CPUs; and the looks are bounded, so
            // INV-7 does not depend on that.
            for _ in 0..self.hardware.glances() {
                if late == 0 {
                    break;
                }
                self.hardware.relax();
                late = word.load(Ordering::Acquire); // Acquire: as above
            }
            while late != 0 {
                self.wait_a_turn(Awaited::Mailbox(mailbox), first_cpu(index, late), &mut waited);
                late = word.load(Ordering::Acquire); // Acquire: as above
            }
        }
    }

    /// One turn of a wait: `late` has not answered yet.
    #[cold]
    fn wait_a_turn(&self, awaited: Awaited<'_>, late: CpuId, waited: &mut Waited) {
        self.hardware.event(Event::Waiting(late));
        self.hardware.with_irqs_off(|irqs| self.answer_out_of_line(irqs));
        self.hardware.relax();
        if !waited.is_turn_late(self.hardware) {
            return;
        }
        let (initiator, mailboxes) = match awaited {
            Awaited::Mailbox(mailbox) => (self.id, mailbox..mailbox + 1),
            Awaited::FreeMailbox => (self.id, 0..MAILBOXES),
            Awaited::Issued(issued) => (issued.cpu, issued.mailbox()..issued.mailbox() + 1),
        };
        mailboxes.clone().for_each(|mailbox| self.resend_late(initiator, mailbox));
        if !waited.has_timed_out(self.hardware) {
            return;
        }
        let missing = self.tlb.matrix.missing(initiator, mailboxes, &self.tlb.cpus);
        let mut is_anybody = false;
        missing.for_each(|_| is_anybody = true);
        if is_anybody {
            self.hardware.unanswered(missing);
        }
    }

    /// One turn of a wait for `cpu`, which is in the middle of a switch (`space/end.rs`): no IPI would end that. If it
    /// is late it is named like one that does not answer. This CPU, whose interrupts are off, then answers the others,
    /// so that none of them finds it missing in the place of that one.
    #[inline(always)]
    pub(crate) fn wait_for_switch(&self, cpu: CpuId, waited: &mut Waited) {
        self.hardware.relax();
        if waited.is_turn_late(self.hardware) {
            self.report_switch(cpu, waited);
        }
    }

    #[cold]
    fn report_switch(&self, cpu: CpuId, waited: &mut Waited) {
        let _ = self.hardware.late(cpu); // whatever it says: no IPI would end a switch
        self.hardware.with_irqs_off(|irqs| self.answer_out_of_line(irqs));
        if waited.has_timed_out(self.hardware) {
            let (index, bit) = split(cpu);
            let word = AtomicU64::new(bit);
            let first = AtomicCpuSet::new(slice::from_ref(&word));
            let owes = Owes::Switch(index);
            self.hardware.unanswered(Missing { first, others: &[], attendance: &self.tlb.cpus, owes });
        }
    }

    /// One turn of a wait for an issued request, be it this CPU's or another one's, with interrupts on or off. False if
    /// the request is over.
    #[cold]
    pub(crate) fn wait_a_turn_for_issued(&self, issued: &Issued, waited: &mut Waited) -> bool {
        let Some(late) = self.first_missing(issued) else { return false };
        self.wait_a_turn(Awaited::Issued(issued), late, waited);
        true
    }

    /// One turn of a wait for a free mailbox of this CPU, with interrupts on or off. Returns at once if all CPUs have
    /// answered.
    #[cold]
    pub(crate) fn wait_a_turn_for_mailbox(&self, waited: &mut Waited) {
        if let Some(late) = self.missing().any_responder() {
            self.wait_a_turn(Awaited::FreeMailbox, late, waited);
        }
    }

    /// Waits until an issued request is over, be it this CPU's or another one's. Answers other CPUs meanwhile.
    ///
    /// # Panics
    /// If interrupts are off (INV-7); if called while this CPU waits for another flush.
    #[cold]
    pub(crate) fn wait_for_issued(&self, issued: &Issued) {
        self.assert_here();
        self.assert_may_wait();
        self.assert_not_in_a_flush();
        self.state.is_in_a_flush.set(1);
        let mut waited = Waited::default();
        while self.wait_a_turn_for_issued(issued, &mut waited) {}
        if issued.cpu == self.id {
            self.free_if_answered(issued.mailbox());
        }
        self.state.is_in_a_flush.set(0);
        self.assert_here();
        self.hardware.event(Event::FlushEnd);
    }

    /// Waits until one of this CPU's mailboxes is free. Answers other CPUs meanwhile.
    ///
    /// # Panics
    /// If interrupts are off (INV-7).
    #[cold]
    pub(crate) fn wait_for_mailbox(&self) -> usize {
        self.assert_may_wait();
        let mut waited = Waited::default();
        loop {
            if let Some(mailbox) = self.find_free_mailbox() {
                return mailbox;
            }
            self.wait_a_turn_for_mailbox(&mut waited);
        }
    }

    /// # Panics
    /// If interrupts are off (INV-7).
    pub(crate) fn assert_may_wait(&self) {
        assert!(
            self.hardware.irqs_enabled(),
            "waiting for other CPUs with interrupts off: issue and poll, or flush after the lock"
        );
    }

    /// # Panics
    /// If this CPU is in the middle of a flush: then an interrupt handler wants another one.
    pub(crate) fn assert_not_in_a_flush(&self) {
        assert!(
            self.state.is_in_a_flush.get() == 0,
            "a flush inside the wait of another: flushes are not for interrupts"
        );
    }

    /// Ends the requests that this CPU had sent before it went offline; the diagram is above. It answers nobody
    /// meanwhile if it is absent, and like every wait if it resumes.
    pub(crate) fn end_requests(&self) {
        for mailbox in 0..MAILBOXES {
            let outbox = self.tlb.matrix.outbox(self.id, mailbox);
            outbox.for_each(|cpu| {
                if !self.withdraw(mailbox, cpu) {
                    self.resend(self.id, cpu);
                }
            });
            self.wait(mailbox, &Responders { words: outbox.words(), start: 0, count: 0 });
            self.free_if_answered(mailbox);
        }
        self.state.is_in_a_flush.set(0);
    }

    /// The CPUs that have not answered a request of this CPU, be it waited for or issued: what a watchdog prints.
    #[must_use]
    pub fn missing(&self) -> Missing<'_> {
        self.tlb.matrix.missing(self.id, 0..MAILBOXES, &self.tlb.cpus)
    }

    /// Deals with the responders that have not answered the request in this mailbox of `initiator`: withdraws it from
    /// those that went offline, and sends the others another IPI unless the kernel says otherwise. Only the CPU whose
    /// outbox it is may withdraw.
    #[cold]
    fn resend_late(&self, initiator: CpuId, mailbox: usize) {
        self.tlb.matrix.outbox(initiator, mailbox).for_each(|cpu| {
            let is_over = if initiator == self.id { self.withdraw(mailbox, cpu) } else { self.is_offline(cpu) };
            if !is_over && self.hardware.late(cpu) == Late::AskAgain {
                self.resend(initiator, cpu);
            }
        });
    }

    /// Leaves the hint of `initiator`, which may be another CPU, with `cpu` again, and sends it another IPI. A hint
    /// without a request does no harm.
    fn resend(&self, initiator: CpuId, cpu: CpuId) {
        self.tlb.matrix.inbox(cpu).leave_hint_again(initiator);
        if cpu != self.id {
            self.hardware.send_ipi(cpu); // this CPU answers itself at each turn of the wait
        }
    }
}
