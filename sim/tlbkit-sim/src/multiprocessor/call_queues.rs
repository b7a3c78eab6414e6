//! The queues of calls by which Linux tells other CPUs, as far as they show in the cache lines that move.
//!
//! The protocol that runs is always ours, whatever the policy. It tells other CPUs by mailboxes, inboxes and outboxes.
//! Linux puts a *call* into a queue of each target (its kernel/smp.c). If the code that is charged has a table
//! `[queues]` in its file in `sim/machines/software/`, Linux's lines move in place of ours, access by access:
//!
//! | what the protocol does | what Linux does to which lines |
//! |---|---|
//! | an initiator reads a presence | reads that CPU's flag that it is lazy; later versions first what it has loaded |
//! | it posts its request | writes its own record of the flush |
//! | it leaves a hint in an inbox | writes its call for this target; reads the head of the queue and exchanges it |
//! | it interrupts | interrupts those whose queue was empty, when all have their calls |
//! | the handler takes the hints | exchanges the head of its own queue, once |
//! | it looks into an initiator's outbox | reads the call, and writes it, since it turns the queue round |
//! | it reads the mailbox | reads the initiator's record |
//! | it clears its bit | writes the call |
//! | the initiator waits for its outbox to be empty | reads one call after the other, each until it is done |
//!
//! The rest of what the protocol does to these parts has no counterpart in Linux and is free. A CPU that waits in Linux
//! does not look into its queue, but takes interrupts. It does so here too
//! ([`Hardware::glances`](tlbkit::Hardware::glances)), except while it waits for a flush that was issued before, which
//! Linux does not have. The model is not exact in three points:
//!
//! - An exchange that fails is made again, which costs nothing once the line is there.
//! - Linux writes the flag when it changes, and the other line when the loaded space changes and after a flush. Here
//!   each write of a presence writes both lines, and so does each answer to a request that had to be carried out.
//! - There is one call for each pair of CPUs, as in Linux. If two requests to one target are issued one after the
//!   other, the first answer counts for both. The protocol itself waits for both.

use std::cell::{Cell, RefCell};

use super::linux_lines::LinuxLine;
use crate::code::CallQueueReads;

/// A bit for each pair of CPUs: a row for each initiator.
#[derive(Debug)]
pub(super) struct Pairs {
    words: Box<[Cell<u64>]>,
    row: usize,
}

impl Pairs {
    fn new(cpus: usize) -> Self {
        let row = cpus.div_ceil(64);
        Self { words: vec![Cell::new(0); cpus * row].into(), row }
    }

    fn word(&self, from: usize, to: usize) -> (&Cell<u64>, u64) {
        (&self.words[from * self.row + to / 64], 1 << (to % 64))
    }

    pub(super) fn add(&self, from: usize, to: usize) {
        let (word, bit) = self.word(from, to);
        word.set(word.get() | bit);
    }

    pub(super) fn remove(&self, from: usize, to: usize) {
        let (word, bit) = self.word(from, to);
        word.set(word.get() & !bit);
    }

    pub(super) fn has(&self, from: usize, to: usize) -> bool {
        let (word, bit) = self.word(from, to);
        word.get() & bit != 0
    }

    /// The first target of `from`.
    pub(super) fn first(&self, from: usize) -> Option<usize> {
        let row = &self.words[from * self.row..][..self.row];
        let (index, word) = row.iter().enumerate().find(|(_, word)| word.get() != 0)?;
        Some(index * 64 + word.get().trailing_zeros() as usize)
    }
}

/// The queues of all CPUs.
#[derive(Debug)]
pub(super) struct CallQueues {
    pub(super) reads: CallQueueReads,
    cpus: usize,
    /// Calls that their initiators have not yet seen to be done.
    pub(super) waited_for: Pairs,
    /// Calls that are not done.
    pub(super) open: Pairs,
    /// By CPU: the CPUs that it will interrupt when all calls of its flush are queued.
    pub(super) held_back: Box<[RefCell<Vec<u32>>]>,
    /// By CPU: it waits for its calls.
    pub(super) is_waiting: Box<[Cell<bool>]>,
    /// By CPU: the request that it answers was found to be done.
    pub(super) was_current: Box<[Cell<bool>]>,
}

impl CallQueues {
    pub(super) fn new(reads: CallQueueReads, cpus: usize) -> Self {
        let flags = || vec![Cell::new(false); cpus].into();
        Self {
            reads,
            cpus,
            waited_for: Pairs::new(cpus),
            open: Pairs::new(cpus),
            held_back: vec![RefCell::default(); cpus].into(),
            is_waiting: flags(),
            was_current: flags(),
        }
    }

    /// The line of the call of `from` for one target.
    pub(super) const fn call(&self, from: usize, to: usize) -> LinuxLine {
        LinuxLine::Call(from * self.cpus + to)
    }
}
