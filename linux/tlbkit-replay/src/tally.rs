//! What one replay counted.

use crate::bill::Bill;
use crate::op::{Party, Who};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use tlbkit_trace::{FlushReason, FlushSize};

/// A count that a trace tells only within bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// The lowest count that is possible.
    pub low: u64,
    /// The highest count that is possible.
    pub high: u64,
}

/// Counts of one replay, in the words of Linux's own tracepoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Flushes by reason and size; 0 pages: kept over a switch, or nothing left to do.
    pub flushes: BTreeMap<(u8, FlushSize), u64>,
    /// Interrupts sent, by target.
    pub interrupts: u64,
    /// Those of them whose target certainly held what was revoked, and those whose target ran the space at all.
    pub needed_interrupts: Bounds,
    /// Entries that flushes dropped though they were still true.
    pub entries_lost: Bounds,
    /// Time for which programs ran, on all CPUs.
    pub busy_ns: u64,
    /// The same of those whom the reader asks about.
    pub asked_busy_ns: u64,
    /// What all of it costs.
    pub bill: Bill,
    /// What each kind of caller cost, by the name of its thread and what it asked for.
    pub by_caller: FxHashMap<Who, Caller>,
}

/// What a caller cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Flushes.
    pub flushes: u64,
    /// What it costs, on all CPUs.
    pub bill: Bill,
}

impl Tally {
    /// Flushes of `reason` of any size.
    #[must_use]
    pub fn of(&self, reason: FlushReason) -> u64 {
        self.flushes.range((reason as u8, FlushSize::Pages(0))..=(reason as u8, FlushSize::All)).map(|(_, n)| n).sum()
    }

    /// Flushes of `reason` and `size`.
    #[must_use]
    pub fn sized(&self, reason: FlushReason, size: FlushSize) -> u64 {
        self.flushes.get(&(reason as u8, size)).copied().unwrap_or(0)
    }

    /// What those cost whom the reader asks about, on all CPUs: what they asked for, and the switches to them.
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

    /// Charges whoever is at work, and the whole.
    pub(crate) fn charge(&mut self, who: Option<Who>, charge: impl Fn(&mut Bill)) {
        charge(&mut self.bill);
        if let Some(who) = who {
            charge(&mut self.by_caller.entry(who).or_default().bill);
        }
    }
}
