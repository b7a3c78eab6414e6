//! Counts the functions that were called across CPUs: how often each was asked for, how often it ran, and how often it
//! flushed.
//!
//! A function that has flushed is the kernel's flush handler, under any name. So the targets of shootdowns can be
//! counted even where the names of functions are hidden.

use super::timing::Ended;
use crate::names::Code;
use rustc_hash::FxHashMap;

/// The most functions that are told apart. A kernel has some tens, and a hostile file cannot make the memory grow
/// further.
const MAX_FUNCTIONS: usize = 1 << 12;

/// The counts of one function that was called across CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallRow {
    /// The function that ran.
    pub func: Code,
    /// How often it was queued, once for each target.
    pub queued: u64,
    /// How often it ran, also on the CPU of its sender.
    pub runs: u64,
    /// How often it ran and flushed at least once.
    pub flushes: u64,
}

#[derive(Default)]
pub(super) struct Calls {
    rows: FxHashMap<Code, CallRow>,
}

impl Calls {
    pub(super) fn queue(&mut self, func: Code) {
        self.on(func, |row| row.queued += 1);
    }

    pub(super) fn end(&mut self, func: Code, ended: Ended) {
        self.on(func, |row| {
            row.runs += 1;
            row.flushes += u64::from(!matches!(ended, Ended::WithoutFlush));
        });
    }

    fn on(&mut self, func: Code, count: impl FnOnce(&mut CallRow)) {
        if self.rows.len() < MAX_FUNCTIONS || self.rows.contains_key(&func) {
            count(self.rows.entry(func).or_insert(CallRow { func, queued: 0, runs: 0, flushes: 0 }));
        }
    }

    pub(super) fn rows(&self) -> Vec<CallRow> {
        let mut rows: Vec<_> = self.rows.values().copied().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.runs), row.func));
        rows
    }
}
