//! To which process a thread belongs, and what the process is called.

use super::time::Owner;
use crate::event::{Event, EventKind};
use crate::limits::MAX_THREADS;
use crate::names::{Name, Names};
use rustc_hash::FxHashMap;

/// All threads and processes of which events have told.
#[derive(Default)]
pub(super) struct People {
    process: FxHashMap<i32, i32>,
    /// The name of the main thread of each process.
    programs: FxHashMap<i32, Name>,
}

impl People {
    /// Learns from an event, and returns the process that it belongs to.
    pub(super) fn meet(&mut self, event: &Event) -> Owner {
        // The event of a thread that has ended names no process any more. The one that it had before is meant.
        if event.pid > 0 {
            if self.process.len() >= MAX_THREADS {
                self.process.clear();
                self.programs.clear();
            }
            self.process.insert(event.tid, event.pid);
        }
        if event.pid == event.tid && event.comm != Names::UNKNOWN {
            self.programs.insert(event.pid, event.comm);
        }
        if let EventKind::Fork { child, .. } = event.kind {
            self.process.remove(&child);
            self.programs.remove(&child);
        }
        self.owner(event.tid, event.comm)
    }

    /// The process of the thread `tid`, whose name is `comm`. If its process is not known, the thread stands for it.
    pub(super) fn owner(&self, tid: i32, comm: Name) -> Owner {
        let pid = self.process.get(&tid).copied().unwrap_or(tid);
        Owner { pid, program: self.programs.get(&pid).copied().unwrap_or(comm) }
    }
}
