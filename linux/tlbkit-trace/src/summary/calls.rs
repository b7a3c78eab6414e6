//! Functions that ran across CPUs, by function: how often asked for, how often run, how often a flush.
//!
//! A function that flushed once is the kernel's flush handler, whatever its name: so the targets of shootdowns can be
//! counted where symbols are hidden, too.

use super::timing::Ended;
use crate::names::Code;
use rustc_hash::FxHashMap;

/// A kernel has some tens of them; a hostile file does not get more.
const MAX_FUNCTIONS: usize = 1 << 12;

/// One function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallRow {
    /// The function that ran.
    pub func: Code,
    /// Requests to run it, one for each target.
    pub queued: u64,
    /// Times it ran, its sender's own half included.
    pub runs: u64,
    /// Times it ran and flushed.
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
