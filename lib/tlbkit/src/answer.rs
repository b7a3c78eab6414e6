//! The responder's side of a shootdown: what a CPU does when others ask it to flush. The diagram is in `shootdown.rs`.

use crate::addr::CpuId;
use crate::cpu_set::split;
use crate::cpu_state::Presence;
use crate::hardware::{Event, Hardware, IrqsOff};
use crate::history::state::Room;
use crate::request::{InUse, RING};
use crate::sync::Ordering;
use crate::tlb::Cpu;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Carries out what other CPUs have asked of this one: the interrupt handler calls it, and every wait does.
    ///
    /// When it returns, each request whose hint was in the inbox when it was called has been carried out. A hint that
    /// comes later has an interrupt of its own. On a CPU that has left it does nothing: an interrupt may come after the
    /// request that sent it was carried out.
    ///
    /// # Panics
    /// If it is called for another CPU, and [`Hardware::this_cpu`] can tell; so does every other call.
    #[inline(always)]
    pub fn answer(&self, irqs: &IrqsOff) {
        if !self.is_here() || self.presence() == Presence::ABSENT {
            return; // its initiators withdraw their requests, and may be writing the next
        }
        self.tlb.matrix.inbox(self.id).take_hints(|initiator| {
            // If the first mailbox is not for this CPU, or not alone, the hint may be that of another one.
            if self.answer_one(initiator, 0, irqs) != Some(InUse::FirstAlone) {
                self.answer_others(initiator, irqs);
            }
        });
    }

    /// The same out of line, for waits.
    #[inline(never)]
    pub(crate) fn answer_in_a_wait(&self, irqs: &IrqsOff) {
        self.answer(irqs);
    }

    #[cold]
    fn answer_others(&self, initiator: CpuId, irqs: &IrqsOff) {
        (1..RING).for_each(|slot| _ = self.answer_one(initiator, slot, irqs));
    }

    /// Carries out the request in mailbox `slot` of `initiator`, if it is for this CPU; what it says of the others.
    #[inline(always)]
    fn answer_one(&self, initiator: CpuId, slot: usize, irqs: &IrqsOff) -> Option<InUse> {
        let (index, own_bit) = split(self.id);
        // Up to 64 CPUs it is one word, found without a look at the others.
        let word = match self.tlb.matrix.outbox_word(initiator, slot) {
            Some(word) => word,
            None => &self.tlb.matrix.outbox(initiator, slot).words()[index],
        };
        // Acquire: partner is the Release with which the initiator stores its outbox: the mailbox is whole.
        if word.load(Ordering::Acquire) & own_bit == 0 {
            return None;
        }
        self.hardware.event(Event::AnswerBegin(initiator));
        let mut room = Room::new();
        let first = &self.tlb.cpus[initiator.0 as usize].first;
        let mailbox = if slot == 0 { first.mailbox() } else { self.tlb.matrix.mailbox(initiator, slot) };
        let (request, in_use) = mailbox.read(&mut room);
        self.flush_local(&request, irqs);
        self.hardware.event(Event::AnswerEnd(initiator));
        // Release: the flush is over; partner is the Acquire of whoever waits, or looks for a free mailbox.
        word.fetch_and(!own_bit, Ordering::Release);
        Some(in_use)
    }
}
