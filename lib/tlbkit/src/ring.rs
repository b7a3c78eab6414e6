//! The mailboxes of a CPU, so that several of its requests can be outstanding at once: which of them is free, and when
//! a request is over.
//!
//! A request that was issued is waited for later: on this CPU, on another one to which the task has gone meanwhile, or
//! never. So nobody says that a mailbox is free. It is when its outbox is empty, and its CPU looks before it writes it:
//!
//! ```text
//!   initiator (free_slot, then post)          responder (answer)       waiter on any CPU (first_missing)
//!                                             flush
//!                                             clear its bit (Release)
//!   is the outbox empty?        (Acquire)                              is the outbox empty?       (Acquire)
//!   turn := turn + 1            (Release)                              if not: is the turn still
//!   write the mailbox                                                  that of the request?       (Acquire)
//!   outbox := responders        (Release)
//! ```
//! A *turn* counts how often the CPU has found the mailbox empty after a request was issued in it. Who finds another
//! turn than the request's has found it over, whatever the outbox says of the next one.
//!
//! An outbox is written by two: by its own CPU, which adds responders and withdraws those that are absent, and by each
//! responder, which clears its own bit. A waiter on another CPU only reads it, and counts a responder that it sees
//! absent as one that has answered. If it cleared the bit, it could be that of the next request.
//!
//! A hint names no mailbox. So that one request costs its responders one look, the first mailbox says whether others
//! are in use:
//!
//! ```text
//!   initiator (ask)                           responder (answer)
//!   say so in the first mailbox               take the hint                               (Acquire)
//!   write another mailbox                     is its bit in the first outbox?             (Acquire)
//!   its outbox := responders    (Release)     if so: read what the first mailbox says, and answer it
//!   leave the hint              (Release)     unless it says that it is alone: look at all other outboxes
//! ```
//! A responder that took an older hint may read the first mailbox too early. It then finds the new hint in its inbox.
//!
//! The first mailbox may be being read when the initiator says so in it. That is one word, which the initiator alone
//! writes, with one bit more:
//!
//! ```text
//!   initiator (tell_of_others)                responder (answer_one)
//!                                             is its bit in the first outbox?             (Acquire)
//!   shape := shape and "several"              read the shape: old or new, it asks for the same
//!   write another mailbox ...                 carry it out
//!   leave the hint              (Release)     clear its bit                               (Release)
//! ```
//! Who has read the old word has not taken that hint, so it is still in the inbox. The other words are not touched.

use core::ops::Range;

use crate::addr::CpuId;
use crate::cpu_set::first_cpu;
use crate::cpu_state::Presence;
use crate::hardware::Hardware;
use crate::request::{InUse, RING, Request};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::tlb::Cpu;

/// Those that were asked by one mailbox.
#[derive(Clone, Copy)]
pub(crate) struct Responders<'k> {
    /// Words of the outbox in which all of them stand.
    pub(crate) words: &'k [AtomicU64],
    /// The index of the first of these words.
    pub(crate) start: usize,
    pub(crate) count: u32,
}

/// A request that was issued: whose it is, in which mailbox, and where in the outbox its responders stand.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) cpu: CpuId,
    slot: u32,
    turn: u32,
    words: Range<u32>,
}

impl Asked {
    pub(crate) const fn slot(&self) -> usize {
        self.slot as usize
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// The number of a mailbox that nobody reads any more; none if each may be being read.
    #[inline(always)]
    pub(crate) fn free_slot(&self) -> Option<usize> {
        if self.state.issued.get() == 0 { Some(0) } else { self.find_free_slot() }
    }

    #[cold]
    pub(crate) fn find_free_slot(&self) -> Option<usize> {
        (0..RING).find(|&slot| self.is_free(slot))
    }

    /// True if nobody reads mailbox `slot` any more.
    pub(crate) fn is_free(&self, slot: usize) -> bool {
        if self.state.issued.get() & 1 << slot == 0 {
            return true;
        }
        let outbox = self.tlb.matrix.outbox(self.id, slot);
        outbox.each(|cpu| _ = self.withdraw(slot, cpu));
        // Acquire: partner is the Release with which a responder clears its bit: it has read the mailbox.
        let is_empty = outbox.words().iter().all(|word| word.load(Ordering::Acquire) == 0);
        if is_empty {
            self.free(slot);
        }
        is_empty
    }

    /// Mailbox `slot` was issued, and its outbox was found empty.
    fn free(&self, slot: usize) {
        self.state.issued.set(self.state.issued.get() & !(1 << slot));
        // Relaxed: this CPU alone writes it.
        let turn = self.state.turns[slot].load(Ordering::Relaxed);
        // Release: the responders have answered; partner is the Acquire in `first_missing`.
        self.state.turns[slot].store(turn.wrapping_add(1), Ordering::Release);
    }

    /// Writes `request` into this CPU's mailbox `slot`, which is free. Out of line, for requests that are not common.
    #[inline(never)]
    pub(crate) fn post_anywhere(&self, slot: usize, request: &Request<'_>) {
        let (first, in_use) = (self.state.first.mailbox(), self.in_use());
        let mailbox = if slot == 0 {
            first
        } else {
            first.tell_of_others();
            self.tlb.matrix.mailbox(self.id, slot)
        };
        mailbox.post(request, in_use);
    }

    /// What a first mailbox says of the others: one that is written now is in use only if a request was issued.
    #[inline(always)]
    fn in_use(&self) -> InUse {
        if self.state.issued.get() == 0 { InUse::FirstAlone } else { InUse::Several }
    }

    /// `responders` were asked by mailbox `slot`, and nobody waits for them yet. Their request, as one to wait for.
    pub(crate) fn note_issued(&self, slot: usize, responders: Responders<'_>) -> Asked {
        self.state.issued.set(self.state.issued.get() | 1 << slot);
        // Relaxed: this CPU alone writes it.
        let turn = self.state.turns[slot].load(Ordering::Relaxed);
        let start = responders.start as u32;
        Asked { cpu: self.id, slot: slot as u32, turn, words: start..start + responders.words.len() as u32 }
    }

    /// A CPU that has not answered `asked`; none if the request is over. It may be another CPU's.
    pub(crate) fn first_missing(&self, asked: &Asked) -> Option<CpuId> {
        let turn = &self.tlb.cpus[asked.cpu.0 as usize].turns[asked.slot()];
        let words = asked.words.start as usize..asked.words.end as usize;
        for (index, word) in self.tlb.matrix.outbox(asked.cpu, asked.slot()).words_at(words) {
            // Acquire: partner is the Release with which a responder clears its bit: its flush is over (C-60).
            let mut waited_for = word.load(Ordering::Acquire);
            // Acquire: partner is the Release in `free`; with it the answers that the initiator has found come before.
            if waited_for != 0 && turn.load(Ordering::Acquire) != asked.turn {
                return None;
            }
            while waited_for != 0 {
                let cpu = first_cpu(index, waited_for);
                if !self.has_left(cpu) {
                    return Some(cpu);
                }
                waited_for &= waited_for - 1;
            }
        }
        None
    }

    /// True if `cpu` has left. It reads no mailbox any more, and flushes everything before it is back.
    pub(crate) fn has_left(&self, cpu: CpuId) -> bool {
        // Acquire: partner is the Release of `offline`: what that CPU did is over.
        Presence(self.tlb.cpus[cpu.0 as usize].presence.load(Ordering::Acquire)).has_left()
    }

    /// Takes back the request in mailbox `slot` from a CPU that has left. False if it has not.
    pub(crate) fn withdraw(&self, slot: usize, cpu: CpuId) -> bool {
        let has_left = self.has_left(cpu) && {
            // SeqCst: its bit was set before; partner is the fence in `forget_requests`, diagram in `wait.rs`.
            fence(Ordering::SeqCst);
            self.has_left(cpu)
        };
        if has_left {
            // Relaxed: that CPU needs nothing of it, and a waiter elsewhere looks at its presence.
            self.tlb.matrix.outbox(self.id, slot).remove(cpu, Ordering::Relaxed);
        }
        has_left
    }
}
