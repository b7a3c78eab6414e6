//! The mailboxes of a CPU: which of them is free, and when a request is over.
//!
//! A CPU has several mailboxes, so that several of its requests can be outstanding at once. A request that was issued
//! is waited for later: on this CPU, on another one to which the task has migrated meanwhile, or never. So nobody marks
//! a mailbox as free: it is free when its outbox is empty, which its CPU checks before it uses it again:
//!
//! ```text
//!   initiator (free_mailbox, then post)            responder (answer)       waiter on any CPU (first_missing)
//!                                                  flush
//!                                                  clear its bit (Release)
//!   is the outbox empty?        (Acquire)                                   is the outbox empty?       (Acquire)
//!   turn := turn + 1            (Release)                                   if not: is the turn still
//!   write the mailbox                                                       that of the request?       (Acquire)
//!   outbox := responders        (Release)
//! ```
//! A *turn* counts how often the CPU has found the mailbox empty after a request was issued in it. A waiter that finds
//! another turn than its request's knows that the request is over, whatever the outbox says about the next one.
//!
//! An outbox is written by its own CPU, which adds responders and withdraws those that are offline, and by each
//! responder, which clears its own bit. A waiter on another CPU only reads it, and counts a responder that it sees
//! offline as one that has answered. If it cleared the bit, that could be the bit of the next request.
//!
//! A hint does not name a mailbox. So that one request costs its responders one look, the first mailbox says whether
//! others are in use:
//!
//! ```text
//!   initiator (free_mailbox, then post)            responder (answer)
//!   say so in the first mailbox                    take the hint                          (Acquire)
//!   write another mailbox                          is its bit set in the first outbox?    (Acquire)
//!   its outbox := responders    (Release)          if so: read what the first mailbox says, and answer it
//!   leave the hint              (Release)          unless it is alone: look at all other outboxes
//! ```
//! A responder that took an older hint may read the first mailbox too early. It then finds the new hint in its inbox.
//!
//! A responder may be reading the first mailbox just when the initiator says so there. That is one word, which only the
//! initiator writes, with one bit more:
//!
//! ```text
//!   initiator (mark_others_in_use)                 responder (answer_mailbox)
//!                                                  is its bit set in the first outbox?    (Acquire)
//!   shape := shape and "several"                   read the shape: old or new, it says the same request
//!   write another mailbox ...                      carry it out
//!   leave the hint              (Release)          clear its bit                          (Release)
//! ```
//! A responder that has read the old word has not taken that hint, so the hint is still in its inbox. The other words
//! are not touched.

use core::ops::Range;

use super::request::{InUse, MAILBOXES, Mailbox};
use crate::addr::CpuId;
use crate::cpu::Cpu;
use crate::cpu::state::Presence;
use crate::hardware::Hardware;
use crate::space::cpu_set::first_cpu;
use crate::sync::{AtomicU64, Ordering, fence};

/// The CPUs to which a request was sent: those words of the mailbox's outbox that name them, the index of the first of
/// these words, and how many CPUs they are, for which a move to INVLPGB asks, and the counters of `history`.
pub(crate) struct Responders<'k> {
    pub(crate) words: &'k [AtomicU64],
    pub(crate) start: usize,
    pub(crate) count: u32,
}

/// A request that was issued: its initiator, its mailbox and turn, and which words of the outbox name its responders.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) cpu: CpuId,
    mailbox: u32,
    turn: u32,
    words: Range<u32>,
}

impl Issued {
    /// The number of its mailbox.
    pub(crate) const fn mailbox(&self) -> usize {
        self.mailbox as usize
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// A mailbox of any CPU.
    pub(crate) fn mailbox(&self, cpu: CpuId, mailbox: usize) -> Mailbox<'_> {
        if mailbox == 0 { self.tlb.cpus[cpu.0 as usize].first.mailbox() } else { self.tlb.matrix.mailbox(cpu, mailbox) }
    }

    /// The number of a mailbox of this CPU that no responder reads any more. None if all mailboxes are still in use.
    pub(crate) fn free_mailbox(&self) -> Option<usize> {
        if self.state.issued.get() == 0 { Some(0) } else { self.find_free_mailbox() }
    }

    #[cold]
    pub(crate) fn find_free_mailbox(&self) -> Option<usize> {
        let free = (0..MAILBOXES).find(|&mailbox| self.free_if_answered(mailbox));
        if free.is_some_and(|mailbox| mailbox != 0) {
            self.state.first.mailbox().mark_others_in_use();
        }
        free
    }

    /// A mailbox of this CPU.
    pub(crate) fn own_mailbox(&self, mailbox: usize) -> Mailbox<'_> {
        if mailbox == 0 { self.state.first.mailbox() } else { self.tlb.matrix.mailbox(self.id, mailbox) }
    }

    /// What the first mailbox says about the others.
    pub(crate) fn mailboxes_in_use(&self) -> InUse {
        if self.state.issued.get() == 0 { InUse::FirstAlone } else { InUse::Several }
    }

    /// True if no responder reads this mailbox any more: all have answered, or went offline and have the request
    /// withdrawn here. The mailbox is then free, and its turn is over.
    pub(crate) fn free_if_answered(&self, mailbox: usize) -> bool {
        let issued = self.state.issued.get();
        if issued & 1 << mailbox == 0 {
            return true;
        }
        let outbox = self.tlb.matrix.outbox(self.id, mailbox);
        outbox.for_each(|cpu| _ = self.withdraw(mailbox, cpu));
        // Acquire: partner is the Release with which a responder clears its bit: it has read the mailbox.
        let is_empty = outbox.words().iter().all(|word| word.load(Ordering::Acquire) == 0);
        if is_empty {
            self.state.issued.set(issued & !(1 << mailbox));
            // Relaxed: only this CPU writes it.
            let turn = self.state.turns[mailbox].load(Ordering::Relaxed);
            // Release: the responders have answered; partner is the Acquire in `first_missing`.
            self.state.turns[mailbox].store(turn.wrapping_add(1), Ordering::Release);
        }
        is_empty
    }

    /// Records that the request in this mailbox was sent to `responders` and that nobody waits for it yet.
    pub(crate) fn record_issued(&self, mailbox: usize, responders: &Responders<'_>) -> Issued {
        self.state.issued.set(self.state.issued.get() | 1 << mailbox);
        // Relaxed: only this CPU writes it.
        let turn = self.state.turns[mailbox].load(Ordering::Relaxed);
        let start = responders.start as u32;
        let words = start..start + responders.words.len() as u32;
        Issued { cpu: self.id, mailbox: mailbox as u32, turn, words }
    }

    /// A responder that has not answered `issued`, which may be another CPU's request; none if the request is over.
    pub(crate) fn first_missing(&self, issued: &Issued) -> Option<CpuId> {
        let turn = &self.tlb.cpus[issued.cpu.0 as usize].turns[issued.mailbox()];
        for index in issued.words.start as usize..issued.words.end as usize {
            let word = self.tlb.matrix.outbox_word(issued.cpu, issued.mailbox(), index);
            // Acquire: partner is the Release with which a responder clears its bit: its flush is over (C-60).
            let mut missing = word.load(Ordering::Acquire);
            // Acquire: partner is the Release in `free_if_answered`; with it the answers that the initiator has found
            // come before.
            if missing != 0 && turn.load(Ordering::Acquire) != issued.turn {
                return None;
            }
            while missing != 0 {
                let cpu = first_cpu(index, missing);
                if !self.is_offline(cpu) {
                    return Some(cpu);
                }
                missing &= missing - 1;
            }
        }
        None
    }

    /// True if `cpu` is offline. It reads no mailbox any more, and flushes everything before it runs again.
    pub(crate) fn is_offline(&self, cpu: CpuId) -> bool {
        // Acquire: partner is the Release of `offline`: what that CPU did is over.
        Presence(self.tlb.cpus[cpu.0 as usize].presence.load(Ordering::Acquire)).is_offline()
    }

    /// Withdraws the request in this mailbox from a CPU that went offline. False if it has not.
    pub(crate) fn withdraw(&self, mailbox: usize, cpu: CpuId) -> bool {
        let is_offline = self.is_offline(cpu) && {
            // SeqCst: its bit was set before; partner is the fence in `forget_requests`, diagram in `wait.rs`.
            fence(Ordering::SeqCst);
            self.is_offline(cpu)
        };
        if is_offline {
            // Relaxed: that CPU needs nothing of it, and a waiter on another CPU looks at its presence.
            self.tlb.matrix.outbox(self.id, mailbox).remove(cpu, Ordering::Relaxed);
        }
        is_offline
    }
}
