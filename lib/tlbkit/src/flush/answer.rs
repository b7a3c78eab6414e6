//! The responder's side of a shootdown: carrying out the requests of other CPUs. The diagram is in `mod.rs`.
//!
//! **Early acknowledgement** (Amit, 2019 and 2020). Where [`Hardware::acknowledgement`] says so, a responder clears its
//! bit as soon as it has read the request, and the initiator goes on while it flushes. Its interrupts are off until it
//! has: so the program, and kernel code that interrupts hold back, use no old translation after the acknowledgement.
//! All that can come in between are handlers that nothing holds back, such as NMIs, and the functions of
//! [`Hardware`] that the flush calls. Both ask [`Cpu::is_running`], which then says no (C-54):
//!
//! ```text
//!   initiator (send_requests, wait)                responder (answer_mailbox)          NMI on the responder
//!   change the PTE
//!   write the mailbox
//!   outbox := responders        (Release)          is its bit set?          (Acquire)
//!                                                  read the mailbox
//!                                                  owes a flush := 1
//!   wait until outbox = 0       (Acquire)          clear its bit            (Release)
//!   free the frame; write the mailbox                                                  does it owe a flush?
//!   outbox := responders                           flush what was read                 no access, if so
//!                                                  owes a flush := 0
//!                                                  return to the program
//! ```
//! What the program did before the interrupt comes before the bit is cleared: its stores, and the accessed and dirty
//! bits that they have set, so that what the initiator reads after the wait is final (C-42). No other CPU reads the
//! generation of an ASID, so it rises with the flush as before (C-11). A request that comes meanwhile, in the same
//! mailbox, finds the bit cleared and the hint taken, so its initiator sends another IPI and waits for that answer. A
//! CPU that is stopped by force, or preempted by its host, in between executes nothing meanwhile, and flushes before
//! anything else.
//!
//! **The rule**, C-55: a request is acknowledged early only
//! - if this CPU runs its space, so that the space lives until the flush is over whatever the initiator does. This
//!   leaves out kernel addresses, batches, lazy CPUs, and CPUs that only leave a CPU set;
//! - if it frees no table: the walker, which nobody holds back, would read what is written there next (C-20);
//! - if it names no global entries, which kernel code may use, and calls for no answer in person: the end of a space,
//!   and walkers without locks ([`Needs::LATE`]);
//! - if what it names are base pages alone, in a range of less than a large page. Of anything else it is not known
//!   whether a large page is among it, in whose place the initiator may map base pages at once; a CPU that caches both
//!   sizes for one address may stop with a machine check (C-37).
//!
//! The walker may still use what is cached, speculatively, and nobody finds a value by that. So a kernel that changes
//! the memory type of user addresses, or puts mappings into a space that only it uses itself at any moment, calls
//! [`interrupt_walkers`](super::gather::TlbGather::interrupt_walkers) for these: then the answer comes after the flush.

use super::matrix::take;
use super::request::{Extent, InUse, MAILBOXES, Needs, Request, Step};
use crate::addr::{CpuId, Stride};
use crate::cpu::Cpu;
use crate::cpu::state::Presence;
use crate::hardware::{Event, Hardware, IrqsOff};
use crate::policy::history::state::Room;
use crate::space::cpu_set::{first_cpu, split};
use crate::sync::Ordering;

/// The range of a gather that holds a large page has at least so many base pages.
const BASE_PAGES_OF_A_LARGE_ONE: u32 = (Stride::Page2M.bytes() / Stride::Page4K.bytes()) as u32;

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
        if self.may_acknowledge_early(&request) {
            self.state.owes_a_flush.set(1); // before the bit: an NMI on this CPU sees both in this order
            // Release: the mailbox was read, and what the program did is over; partners are as below.
            outbox.fetch_and(!own_bit, Ordering::Release);
            self.flush_local(&request, irqs);
            self.state.owes_a_flush.set(0);
            self.hardware.event(Event::AnswerEnd(initiator));
            return Some(in_use);
        }
        self.flush_local(&request, irqs);
        self.hardware.event(Event::AnswerEnd(initiator));
        // Release: the flush is over; partners are the Acquire loads of the CPU that waits, or looks for a free
        // mailbox.
        outbox.fetch_and(!own_bit, Ordering::Release);
        Some(in_use)
    }

    /// True if this CPU acknowledges `request` before it carries it out: the rule is at the head of the file.
    #[inline(always)]
    fn may_acknowledge_early(&self, request: &Request<'_>) -> bool {
        if !self.acknowledges_early() || request.needs(Needs::LATE) {
            return false;
        }
        let Extent::Range { pages, .. } = request.extent else { return false };
        let is_of_base_pages = request.step == Step::PAGE_4K && pages < BASE_PAGES_OF_A_LARGE_ONE;
        is_of_base_pages && self.presence() == Presence::running(request.space)
    }
}
