//! The names of threads. A sample has only a thread's number, so names are learned from other records.

use crate::event::EventKind;
use crate::names::{Name, Names};
use rustc_hash::FxHashMap;

/// More threads than Linux can have at once on common settings; then the names are learned anew.
const MAX_NAMED: usize = 1 << 20;

pub(super) struct Threads {
    names: FxHashMap<i32, Name>,
    idle: Name,
}

impl Threads {
    pub(super) fn new(names: &mut Names) -> Self {
        Self { names: FxHashMap::default(), idle: names.add("swapper") }
    }

    pub(super) fn name(&self, tid: i32) -> Name {
        match tid {
            0 => self.idle,
            _ => self.names.get(&tid).copied().unwrap_or(Names::UNKNOWN),
        }
    }

    pub(super) fn set(&mut self, tid: i32, name: Name) {
        if self.names.len() >= MAX_NAMED {
            self.names.clear();
        }
        self.names.insert(tid, name);
    }

    /// Takes the names that an event tells in passing, for threads that were not named before.
    pub(super) fn learn(&mut self, kind: &EventKind) {
        let EventKind::Switch { prev, prev_comm, next, next_comm, .. } = *kind else { return };
        for (tid, name) in [(prev, prev_comm), (next, next_comm)] {
            if !self.names.contains_key(&tid) {
                self.set(tid, name);
            }
        }
    }
}
