//! The responder's side of a shootdown: what a CPU does when others ask it to flush. The diagram is in `shootdown.rs`.

use crate::addr::CpuId;
use crate::cpu_set::{first_cpu, split};
use crate::hardware::{Event, Hardware, IrqsOff};
use crate::history::state::Room;
use crate::request::{InUse, Mailbox, RING};
use crate::request_matrix::take_word;
use crate::sync::{AtomicU64, Ordering};
use crate::tlb::Cpu;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Carries out what other CPUs have asked of this one: the interrupt handler calls it, and every wait does; so does
    /// each loop of a kernel that waits for another CPU with its interrupts off, but for one that is entered from a
    /// function of [`Hardware`]. An answer within an answer, or within a switch, could say that a flush is over which
    /// is still to come.
    ///
    /// When it returns, each request whose hint was in the inbox when it was called has been carried out. A hint that
    /// comes later has an interrupt of its own. On a CPU that has left it does nothing: an interrupt may come after the
    /// request that sent it was carried out.
    ///
    /// # Panics
    /// If it is called for another CPU, and [`Hardware::this_cpu`] can tell; so does every other call.
    #[inline(always)]
    pub fn answer(&self, irqs: &IrqsOff) {
        if !self.is_here() || self.presence().is_absent() {
            return; // its initiators withdraw their requests, and may be writing the next
        }
        // Up to 64 CPUs an inbox is one word, and so is an outbox: asked once, and not for each initiator.
        match self.tlb.matrix.inbox(self.id).only_word() {
            Some(inbox) => {
                let mut hints = take_word(inbox);
                while hints != 0 {
                    let initiator = first_cpu(0, hints);
                    self.answer_first(initiator, self.tlb.matrix.first_outbox_word(initiator), irqs);
                    hints &= hints - 1;
                }
            }
            None => self.answer_among_many(irqs),
        }
    }

    /// The same on a larger machine.
    #[inline(never)]
    fn answer_among_many(&self, irqs: &IrqsOff) {
        self.tlb.matrix.inbox(self.id).take_hints(|initiator| {
            if self.answer_slot(initiator, 0, irqs) != Some(InUse::FirstAlone) {
                self.answer_others(initiator, irqs);
            }
        });
    }

    /// The same out of line, for waits.
    #[inline(never)]
    pub(crate) fn answer_in_a_wait(&self, irqs: &IrqsOff) {
        self.answer(irqs);
    }

    /// Answers `initiator`, whose hint was in the inbox; `outbox` is the only word of its first.
    #[inline(always)]
    fn answer_first(&self, initiator: CpuId, outbox: &AtomicU64, irqs: &IrqsOff) {
        let mailbox = self.tlb.cpus[initiator.0 as usize].first.mailbox();
        // If the first mailbox is not for this CPU, or not alone, the hint may be that of another one.
        if self.answer_one(initiator, outbox, mailbox, irqs) != Some(InUse::FirstAlone) {
            self.answer_others(initiator, irqs);
        }
    }

    #[cold]
    fn answer_others(&self, initiator: CpuId, irqs: &IrqsOff) {
        (1..RING).for_each(|slot| _ = self.answer_slot(initiator, slot, irqs));
    }

    /// As [`answer_one`](Self::answer_one), by the number of the mailbox and on machines of any size. Out of line, as
    /// all that is not common.
    #[inline(never)]
    fn answer_slot(&self, initiator: CpuId, slot: usize, irqs: &IrqsOff) -> Option<InUse> {
        let (index, _) = split(self.id);
        let outbox = &self.tlb.matrix.outbox(initiator, slot).words()[index];
        let first = &self.tlb.cpus[initiator.0 as usize].first;
        let mailbox = if slot == 0 { first.mailbox() } else { self.tlb.matrix.mailbox(initiator, slot) };
        self.answer_one(initiator, outbox, mailbox, irqs)
    }

    /// Carries out the request in `mailbox` of `initiator`, if this CPU's bit in `outbox` says that it is for this CPU;
    /// what it says of the other mailboxes.
    #[inline(always)]
    fn answer_one(&self, initiator: CpuId, outbox: &AtomicU64, mailbox: Mailbox<'_>, irqs: &IrqsOff) -> Option<InUse> {
        let (_, own_bit) = split(self.id);
        // Acquire: partner is the Release with which the initiator stores its outbox: the mailbox is whole.
        if outbox.load(Ordering::Acquire) & own_bit == 0 {
            return None;
        }
        self.hardware.event(Event::AnswerBegin(initiator));
        let mut room = Room::new();
        let (request, in_use) = mailbox.read(&mut room);
        self.flush_local(&request, irqs);
        self.hardware.event(Event::AnswerEnd(initiator));
        // Release: the flush is over; partner is the Acquire of whoever waits, or looks for a free mailbox.
        outbox.fetch_and(!own_bit, Ordering::Release);
        Some(in_use)
    }
}
