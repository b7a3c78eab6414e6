//! The names of threads. A sample has only the number of a thread, so its name is learned from other records.

use crate::event::EventKind;
use crate::names::{Name, Names};
use rustc_hash::FxHashMap;

/// The most names that are kept, more than Linux can have threads at once with common settings. If there are more, all
/// are forgotten and learned anew.
const MAX_NAMED: usize = 1 << 20;

/// The names of all threads that were met.
pub(super) struct Threads {
    names: FxHashMap<i32, Name>,
    idle: Name,
}

impl Threads {
    pub(super) fn new(names: &mut Names) -> Self {
        Self { names: FxHashMap::default(), idle: names.add("swapper") }
    }

    /// The name of the thread `tid`, or [`Names::UNKNOWN`].
    pub(super) fn name(&self, tid: i32) -> Name {
        match tid {
            0 => self.idle,
            _ => self.names.get(&tid).copied().unwrap_or(Names::UNKNOWN),
        }
    }

    /// From now on the thread `tid` has this name.
    pub(super) fn set(&mut self, tid: i32, name: Name) {
        if self.names.len() >= MAX_NAMED {
            self.names.clear();
        }
        self.names.insert(tid, name);
    }

    /// Learns the names in a switch of threads, for threads whose name is not known yet.
    pub(super) fn learn(&mut self, kind: &EventKind) {
        let EventKind::Switch { prev, prev_comm, next, next_comm, .. } = *kind else { return };
        for (tid, name) in [(prev, prev_comm), (next, next_comm)] {
            if !self.names.contains_key(&tid) {
                self.set(tid, name);
            }
        }
    }
}
