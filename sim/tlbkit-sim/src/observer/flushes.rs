//! Counters of flushes, and flushes by size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Needed against done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Needed {
    /// How many were sent or executed.
    pub done: u64,
    /// How many of them perfect knowledge would have kept.
    pub needed: u64,
}

impl Needed {
    pub(super) fn count(&mut self, needed: u64) {
        self.done += 1;
        self.needed += needed.min(1);
    }
}

/// Counters of flushes and of what they hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlushCounters {
    /// Flush interrupts.
    pub interrupts: Needed,
    /// INVLPG, and INVPCID of one page.
    pub pages: Needed,
    /// INVPCID of a tag or of all, and CR4.PGE.
    pub everything: Needed,
    /// CR3 writes; needed are those that removed something.
    pub cr3: Needed,
    /// INVLPGB, each of which reaches all CPUs.
    #[serde(default)]
    pub broadcasts: u64,
    /// Flushes begun by the protocol.
    pub flushes: u64,
    /// Pages of all flushes that named pages.
    pub flush_pages: u64,
    /// Flushes of everything.
    pub full_flushes: u64,
    /// Other CPUs of a set that a flush looked at and did not interrupt: they ran something else, or nothing.
    pub left_alone: u64,
    /// CPUs that a flush had chosen and spared, because they flush when they enter the kernel.
    #[serde(default)]
    pub spared_until_entry: u64,
    /// CPUs that a flush had chosen and spared, because the host flushes them before it runs them again.
    #[serde(default)]
    pub spared_by_host: u64,
    /// Interrupts that found their work done.
    pub already_current: u64,
    /// Interrupts for a space that was not loaded.
    pub wrong_space: u64,
    /// Switches that kept the slot's entries.
    pub switches_kept: u64,
    /// Switches that flushed the slot.
    pub switches_flushed: u64,
    /// Processes that ended.
    pub exits: u64,
    /// Flush interrupts sent while a process ended.
    pub exit_interrupts: u64,
    /// Flushes of everything begun while a process ended.
    pub exit_full_flushes: u64,
}

/// Flushes of one size, with what their local halves cost: the table of the page-table-isolation measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlushSize {
    /// Pages; none for everything.
    pub pages: Option<u32>,
    /// How many flushes there were.
    pub flushes: u64,
    /// Cycles of their local halves.
    pub cycles: u64,
}

/// Flushes by size.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlushSizes(BTreeMap<Option<u32>, FlushSize>);

impl FlushSizes {
    pub(crate) fn add(&mut self, pages: Option<u32>, flushes: u64, cycles: u64) {
        let size = self.0.entry(pages).or_insert(FlushSize { pages, ..FlushSize::default() });
        size.flushes += flushes;
        size.cycles += cycles;
    }

    /// All sizes that there were, flushes of everything first.
    pub(crate) fn all(&self) -> Vec<FlushSize> {
        self.0.values().copied().collect()
    }
}
