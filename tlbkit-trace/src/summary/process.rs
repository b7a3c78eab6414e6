//! Flushes by process.

use crate::event::{Event, FlushReason};
use crate::names::Names;
use rustc_hash::FxHashMap;

/// More processes than this share one row.
const MAX_PROCESSES: usize = 1 << 16;
/// The pid of that row.
const OTHERS: i32 = -2;

/// The flushes of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessRow {
    /// Process; -1 for flushes of threads that were already gone, -2 for all that have no row of their own.
    pub pid: i32,
    /// The name that it had last.
    pub comm: String,
    /// By reason, in order of their numbers.
    pub flushes: [u64; FlushReason::ALL.len()],
}

impl ProcessRow {
    /// For all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.flushes.iter().sum()
    }
}

#[derive(Default)]
pub(super) struct Processes {
    rows: FxHashMap<i32, ProcessRow>,
}

impl Processes {
    pub(super) fn count(&mut self, event: &Event, reason: FlushReason, names: &Names) {
        let has_room = self.rows.len() < MAX_PROCESSES || self.rows.contains_key(&event.pid);
        let (pid, comm) = if has_room { (event.pid, names.text(event.comm)) } else { (OTHERS, "others") };
        let new = || ProcessRow { pid, comm: comm.to_owned(), flushes: [0; FlushReason::ALL.len()] };
        let row = self.rows.entry(pid).or_insert_with(new);
        row.flushes[reason as usize] += 1;
        if row.comm != comm {
            comm.clone_into(&mut row.comm);
        }
    }

    pub(super) fn rows(&self) -> Vec<ProcessRow> {
        let mut rows: Vec<_> = self.rows.values().cloned().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.total()), row.pid));
        rows
    }
}
