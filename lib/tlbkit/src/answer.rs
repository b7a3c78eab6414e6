//! The responder's side of a shootdown: what a CPU does when others ask it to flush. The diagram is in `shootdown.rs`.

use crate::addr::CpuId;
use crate::cpu_state::Presence;
use crate::hardware::{Event, Hardware, IrqsOff};
use crate::history::state::Room;
use crate::sync::Ordering;
use crate::tlb::Cpu;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Carries out what other CPUs have asked of this one: the interrupt handler calls it, and every wait does.
    ///
    /// When it returns, each request whose hint was in the inbox when it was called has been carried out. A hint that
    /// comes later has an interrupt of its own. On a CPU that has left it does nothing: an interrupt may come after the
    /// request that sent it was carried out.
    pub fn answer(&self, irqs: &IrqsOff) {
        if self.presence() == Presence::ABSENT {
            return; // its initiators withdraw their requests, and may be writing the next
        }
        self.tlb.matrix.inbox(self.id).take_hints(|initiator| self.answer_one(initiator, irqs));
    }

    fn answer_one(&self, initiator: CpuId, irqs: &IrqsOff) {
        let outbox = self.tlb.matrix.outbox(initiator);
        // Acquire: partner is the Release with which the initiator stores its outbox: the mailbox is whole.
        if !outbox.contains(self.id, Ordering::Acquire) {
            return;
        }
        self.hardware.event(Event::AnswerBegin(initiator));
        let mut room = Room::new();
        let request = self.tlb.cpus[initiator.0 as usize].mailbox.read(&mut room);
        self.flush_local(&request, irqs);
        self.hardware.event(Event::AnswerEnd(initiator));
        // Release: the flush is over; partner is the Acquire in `wait`.
        outbox.remove(self.id, Ordering::Release);
    }
}
