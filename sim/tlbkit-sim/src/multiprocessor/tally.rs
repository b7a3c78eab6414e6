//! What the machine itself counts, apart from the observer and from the accounts. If two counts of one thing disagree,
//! one of them counts something twice or not at all.

use std::cell::Cell;

use super::agenda::NEVER;

/// What an interrupt is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vector {
    /// A request of the protocol.
    Flush,
    /// There is a task to run.
    Kick,
}

/// Interrupts of one kind, all CPUs together. Each that was sent was taken, merged with one that was due already, or is
/// due still.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InterruptTally {
    /// Sent and not lost.
    pub(crate) sent: u64,
    /// Of those, sent while one was due.
    pub(crate) merged: u64,
    /// Taken by their CPUs.
    pub(crate) taken: u64,
}

/// Counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    interrupts: [Cell<InterruptTally>; 2],
    lost: Cell<u64>,
    accesses: Cell<u64>,
}

impl Tally {
    /// Requests to answer that were sent, merged and taken.
    pub(crate) fn flush_interrupts(&self) -> InterruptTally {
        self.interrupts[Vector::Flush as usize].get()
    }

    /// Wake-ups that were sent, merged and taken.
    pub(crate) fn kicks(&self) -> InterruptTally {
        self.interrupts[Vector::Kick as usize].get()
    }

    /// Interrupts that a machine with a defect has lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// Accesses to shared cache lines.
    pub(crate) fn accesses(&self) -> u64 {
        self.accesses.get()
    }

    /// An interrupt was sent to a CPU at which one of the kind was due at `due`, if ever.
    pub(super) fn note_sent(&self, vector: Vector, due: u64) {
        self.count(vector, |tally| {
            tally.sent += 1;
            tally.merged += u64::from(due != NEVER);
        });
    }

    pub(super) fn note_taken(&self, vector: Vector) {
        self.count(vector, |tally| tally.taken += 1);
    }

    pub(super) fn note_lost(&self) {
        self.lost.set(self.lost.get() + 1);
    }

    /// The protocol touches a word.
    #[inline]
    pub(super) fn note_access(&self) {
        self.accesses.set(self.accesses.get() + 1);
    }

    fn count(&self, vector: Vector, count: impl FnOnce(&mut InterruptTally)) {
        let mut tally = self.interrupts[vector as usize].get();
        count(&mut tally);
        self.interrupts[vector as usize].set(tally);
    }
}
