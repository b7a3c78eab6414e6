//! Which process a thread belongs to, and what that is called.

use super::time::Owner;
use crate::event::{Event, EventKind};
use crate::limits::MAX_THREADS;
use crate::names::{Name, Names};
use rustc_hash::FxHashMap;

/// Threads and processes, as far as events have told of them.
#[derive(Default)]
pub(super) struct People {
    process: FxHashMap<i32, i32>,
    /// What the main thread of each process is called.
    programs: FxHashMap<i32, Name>,
}

impl People {
    /// Learns from an event; whose it is.
    pub(super) fn meet(&mut self, event: &Event) -> Owner {
        // A thread that has ended has no process any more: that before is meant.
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

    /// Whose a thread of this name is.
    pub(super) fn owner(&self, tid: i32, comm: Name) -> Owner {
        let pid = self.process.get(&tid).copied().unwrap_or(tid);
        Owner { pid, program: self.programs.get(&pid).copied().unwrap_or(comm) }
    }
}
