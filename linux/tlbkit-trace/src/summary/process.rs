//! Counts flushes by process, and by the name of processes.

use crate::event::{Event, FlushReason};
use crate::names::Names;
use rustc_hash::FxHashMap;

/// The most processes that are told apart. All others share one row.
const MAX_PROCESSES: usize = 1 << 16;
/// The number that stands for the processes which share a row.
const OTHERS: i32 = -2;

/// The flushes of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessRow {
    /// Number of the process. It is -1 for flushes of threads that had already ended, and -2 for all processes without
    /// their own row.
    pub pid: i32,
    /// The last name of its main thread, or of another of its threads if the main thread's name is not known.
    pub comm: String,
    /// How many flushes there were for each reason, in the order of [`FlushReason::ALL`].
    pub flushes: [u64; FlushReason::ALL.len()],
}

impl ProcessRow {
    /// How many flushes there were for all reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.flushes.iter().sum()
    }
}

/// The flushes of all processes of one name. A build, for instance, has thousands of processes and few names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramRow {
    /// The name, the same as [`ProcessRow::comm`].
    pub comm: String,
    /// How many processes had it.
    pub processes: u64,
    /// How many flushes there were for each reason, in the order of [`FlushReason::ALL`].
    pub flushes: [u64; FlushReason::ALL.len()],
}

impl ProgramRow {
    /// How many flushes there were for all reasons together.
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
        // A thread that is ending has lost its number, so its name is not known.
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

    pub(super) fn by_name(&self) -> Vec<ProgramRow> {
        let mut programs: FxHashMap<&str, ProgramRow> = FxHashMap::default();
        for row in self.rows.values() {
            let new = || ProgramRow { comm: row.comm.clone(), processes: 0, flushes: [0; FlushReason::ALL.len()] };
            let program = programs.entry(&row.comm).or_insert_with(new);
            program.processes += 1;
            program.flushes.iter_mut().zip(row.flushes).for_each(|(sum, count)| *sum += count);
        }
        let mut programs: Vec<_> = programs.into_values().collect();
        programs.sort_by(|a, b| b.total().cmp(&a.total()).then_with(|| a.comm.cmp(&b.comm)));
        programs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::names::Name;

    fn event(pid: i32, tid: i32, comm: Name) -> Event {
        Event { time_ns: 0, cpu: 0, pid, tid, comm, stack: None, kind: EventKind::Lost { count: 0 } }
    }

    #[test]
    fn processes_of_one_name_share_a_row() {
        let mut names = Names::default();
        let [make, compiler] = ["make", "cc1"].map(|name| names.add(name));
        let mut processes = Processes::default();
        for (pid, comm, flushes) in [(1, make, 3), (2, compiler, 2), (3, compiler, 1), (4, compiler, 2)] {
            for _ in 0..flushes {
                processes.count(&event(pid, pid, comm), FlushReason::TaskSwitch, &names);
            }
        }
        let rows = processes.by_name();
        let rows: Vec<_> = rows.iter().map(|row| (row.comm.as_str(), row.processes, row.total())).collect();
        assert_eq!(rows, [("cc1", 3, 5), ("make", 1, 3)]);
        assert_eq!(processes.rows()[0].pid, 1, "each still has its row");
    }

    #[test]
    fn a_process_is_called_as_its_main_thread() {
        let mut names = Names::default();
        let [main, worker] = ["rustc", "opt cgu.0"].map(|name| names.add(name));
        let mut processes = Processes::default();
        for (tid, comm, shown) in
            [(8, worker, "opt cgu.0"), (7, main, "rustc"), (8, worker, "rustc"), (-1, Names::UNKNOWN, "rustc")]
        {
            processes.count(&event(7, tid, comm), FlushReason::TaskSwitch, &names);
            assert_eq!(processes.rows()[0].comm, shown);
        }
    }
}
