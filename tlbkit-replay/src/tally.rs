//! What one replay counted.

use crate::cost::Cycles;
use crate::op::Cause;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use tlbkit_trace::{FlushReason, FlushSize, Name};

/// Counts of one replay, in the words of Linux's own tracepoint.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Flushes by reason and size; 0 pages: kept over a switch, or nothing left to do.
    pub flushes: BTreeMap<(u8, FlushSize), u64>,
    /// Interrupts sent, by target.
    pub interrupts: u64,
    /// Interrupts whose target was running the space, and might have used what was revoked.
    pub needed_interrupts: u64,
    /// INVLPG and its kin, by page.
    pub invlpg: u64,
    /// Loads of CR3 that flushed a tag.
    pub cr3_flushes: u64,
    /// Loads of CR3 that kept.
    pub cr3_keeps: u64,
    /// Flushes of everything in every tag.
    pub whole_flushes: u64,
    /// Cycles by cause.
    pub cycles: Cycles,
    /// What each kind of caller cost, by the name of its thread and what it asked for.
    pub by_caller: FxHashMap<Who, Caller>,
}

/// A caller: threads of one name, asking for one thing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Who {
    /// Name of the thread.
    pub comm: Name,
    /// What it asked for; none for switches.
    pub cause: Option<Cause>,
}

/// What a caller cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// Flushes.
    pub flushes: u64,
    /// Interrupts that they sent.
    pub interrupts: u64,
    /// Cycles on all CPUs.
    pub cycles: Cycles,
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

    pub(crate) fn flush(&mut self, reason: FlushReason, size: FlushSize) {
        *self.flushes.entry((reason as u8, size)).or_default() += 1;
    }
}
