//! The counts of one replay.

use crate::bill::Bill;
use crate::op::{Caller, Party};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use tlbkit_trace::{FlushReason, FlushSize};

/// A count of which a trace tells only the bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// The lowest count that is possible.
    pub low: u64,
    /// The highest count that is possible.
    pub high: u64,
}

/// What one replay counted. Flushes are counted as Linux's tracepoint of flushes would record them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Flushes by the discriminant of their [`FlushReason`] and by size. A size of 0 pages means that entries were kept
    /// over a switch, or that nothing was left to do.
    pub flushes: BTreeMap<(u8, FlushSize), u64>,
    /// Interrupts that were sent, each counted once for each of its targets.
    pub interrupts: u64,
    /// How many of these were needed: at least those whose target certainly held what was revoked, and at most those
    /// whose target ran the space at all.
    pub needed_interrupts: Bounds,
    /// Entries that flushes dropped although they were still valid.
    pub entries_lost: Bounds,
    /// For how long programs ran, summed over all CPUs, in nanoseconds.
    pub busy_ns: u64,
    /// For how long the programs ran that the reader asks about, summed over all CPUs, in nanoseconds.
    pub asked_busy_ns: u64,
    /// What was done in all, item by item.
    pub bill: Bill,
    /// What was done for each caller.
    pub by_caller: FxHashMap<Caller, CallerCost>,
}

/// What was done for a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallerCost {
    /// How many flushes it asked for.
    pub flushes: u64,
    /// What was done for it on all CPUs, item by item.
    pub bill: Bill,
}

impl Tally {
    /// How many flushes there were for `reason`, of any size.
    #[must_use]
    pub fn of(&self, reason: FlushReason) -> u64 {
        self.flushes.range((reason as u8, FlushSize::Pages(0))..=(reason as u8, FlushSize::All)).map(|(_, n)| n).sum()
    }

    /// How many flushes of this size there were for `reason`.
    #[must_use]
    pub fn sized(&self, reason: FlushReason, size: FlushSize) -> u64 {
        self.flushes.get(&(reason as u8, size)).copied().unwrap_or(0)
    }

    /// What was done for the callers that the reader asks about, on all CPUs: what they asked for, and the switches to
    /// them.
    #[must_use]
    pub fn asked_bill(&self) -> Bill {
        let mut sum = Bill::default();
        for (_, caller) in self.by_caller.iter().filter(|(who, _)| who.party == Party::Asked) {
            sum += &caller.bill;
        }
        sum
    }

    pub(crate) fn flush(&mut self, reason: FlushReason, size: FlushSize) {
        *self.flushes.entry((reason as u8, size)).or_default() += 1;
    }

    /// Charges something to the caller `who`, if one is known, and to the whole.
    pub(crate) fn charge(&mut self, who: Option<Caller>, charge: impl Fn(&mut Bill)) {
        charge(&mut self.bill);
        if let Some(who) = who {
            charge(&mut self.by_caller.entry(who).or_default().bill);
        }
    }
}
