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
    /// The name that its main thread had last, or else one of its threads.
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
        // A thread that ends has no number any more, and so no name.
        let is_better = event.tid == event.pid || row.comm == names.text(Names::UNKNOWN);
        if is_better && event.comm != Names::UNKNOWN && row.comm != comm {
            comm.clone_into(&mut row.comm);
        }
    }

    pub(super) fn rows(&self) -> Vec<ProcessRow> {
        let mut rows: Vec<_> = self.rows.values().cloned().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.total()), row.pid));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;

    #[test]
    fn a_process_is_called_as_its_main_thread() {
        let mut names = Names::default();
        let [main, worker] = ["rustc", "opt cgu.0"].map(|name| names.add(name));
        let mut processes = Processes::default();
        for (tid, comm, shown) in
            [(8, worker, "opt cgu.0"), (7, main, "rustc"), (8, worker, "rustc"), (-1, Names::UNKNOWN, "rustc")]
        {
            let kind = Kind::Lost { count: 0 };
            let event = Event { time_ns: 0, cpu: 0, pid: 7, tid, comm, stack: None, kind };
            processes.count(&event, FlushReason::TaskSwitch, &names);
            assert_eq!(processes.rows()[0].comm, shown);
        }
    }
}
