//! The responder's side of a shootdown: carrying out the requests of other CPUs. The diagram is in `mod.rs`.

use super::matrix::take;
use super::request::{InUse, MAILBOXES};
use crate::addr::CpuId;
use crate::cpu::Cpu;
use crate::hardware::{Event, Hardware, IrqsOff};
use crate::policy::history::state::Room;
use crate::space::cpu_set::{first_cpu, split};
use crate::sync::Ordering;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Carries out the requests that other CPUs have sent to this one. The handler of the shootdown IPI calls it, and
    /// so does each wait for the answers of others. So must each loop of the kernel that waits for another CPU with
    /// interrupts off, except one that is entered from a function of [`Hardware`]: an answer within an answer, or
    /// within a switch, could acknowledge a flush before it has happened.
    ///
    /// When it returns, each request whose IPI had arrived when it was called has been carried out. A hint that is left
    /// later sends another IPI. On a CPU that is offline it does nothing: an IPI may arrive after the request
    /// that sent it was carried out.
    ///
    /// # Panics
    /// If it is called for another CPU, and [`Hardware::this_cpu`] can tell; so do all calls that flush or wait.
    #[inline(always)]
    pub fn answer(&self, irqs: &IrqsOff) {
        if !self.is_here() || self.presence().is_absent() {
            return; // requests are withdrawn, or wait until this CPU is online: `wait.rs`
        }
        self.check_irqs_off();
        debug_assert!(!self.state.deferral.is_deferring(), "CPU {} answers before it has caught up", self.id.0);
        let inbox = self.tlb.matrix.inbox(self.id);
        let Some(word) = inbox.only_word() else { return self.answer_among_many(irqs) };
        let mut hints = take(word);
        while hints != 0 {
            self.answer_initiator(first_cpu(0, hints), irqs);
            hints &= hints - 1;
        }
    }

    /// [`answer`](Self::answer), not inlined: for every caller but the IPI handler.
    pub(crate) fn answer_out_of_line(&self, irqs: &IrqsOff) {
        self.answer(irqs);
    }

    /// [`answer`](Self::answer) on a machine of more than 64 CPUs. One loop for both would cost the smaller one 15
    /// instructions.
    #[inline(never)]
    fn answer_among_many(&self, irqs: &IrqsOff) {
        self.tlb.matrix.inbox(self.id).take_hints(|initiator| self.answer_initiator(initiator, irqs));
    }

    /// A hint does not say which mailbox it is for. If the first one has no request for this CPU, or says that others
    /// are in use, it may be another one.
    #[inline(always)]
    fn answer_initiator(&self, initiator: CpuId, irqs: &IrqsOff) {
        if self.answer_mailbox(initiator, 0, irqs) != Some(InUse::FirstAlone) {
            self.answer_other_mailboxes(initiator, irqs);
        }
    }

    #[cold]
    fn answer_other_mailboxes(&self, initiator: CpuId, irqs: &IrqsOff) {
        for mailbox in 1..MAILBOXES {
            self.answer_mailbox(initiator, mailbox, irqs);
        }
    }

    /// Carries out the request in one mailbox of `initiator`, if this CPU's bit in its outbox says that it is a
    /// responder. Returns what the mailbox says about the other ones.
    #[inline(always)]
    fn answer_mailbox(&self, initiator: CpuId, mailbox: usize, irqs: &IrqsOff) -> Option<InUse> {
        let (own_word, own_bit) = split(self.id);
        let outbox = self.tlb.matrix.outbox_word(initiator, mailbox, own_word);
        // Acquire: partner is the Release with which the initiator stores its outbox: the mailbox is complete.
        if outbox.load(Ordering::Acquire) & own_bit == 0 {
            return None;
        }
        self.hardware.event(Event::AnswerBegin(initiator));
        let mut room = Room::new();
        let (request, in_use) = self.mailbox(initiator, mailbox).read(&mut room);
        self.flush_local(&request, irqs);
        self.hardware.event(Event::AnswerEnd(initiator));
        // Release: the flush is over; partners are the Acquire loads of the CPU that waits, or looks for a free
        // mailbox.
        outbox.fetch_and(!own_bit, Ordering::Release);
        Some(in_use)
    }
}
