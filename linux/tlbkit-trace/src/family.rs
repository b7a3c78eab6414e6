//! A process with everything that it started, as a trace tells it.

use crate::event::{Event, EventKind};
use rustc_hash::FxHashSet;

/// More processes and threads than this are not told apart.
const MAX_MEMBERS: usize = 1 << 18;

/// A process, its threads, and what they started.
#[derive(Clone, Debug)]
pub struct Family {
    members: FxHashSet<i32>,
}

impl Family {
    /// That of one process.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        Self { members: FxHashSet::from_iter([pid]) }
    }

    /// Learns from an event who was started by whom.
    pub fn meet(&mut self, event: &Event) {
        if let EventKind::Fork { parent, child, .. } = event.kind
            && self.members.contains(&parent)
            && self.members.len() < MAX_MEMBERS
        {
            self.members.insert(child);
        }
    }

    /// Whether this process or thread is one of them.
    #[must_use]
    pub fn has(&self, id: i32) -> bool {
        self.members.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    #[test]
    fn children_of_threads_belong_to_it() {
        let fork = |parent, child| {
            let kind = EventKind::Fork { parent, child, child_comm: Names::UNKNOWN };
            Event { time_ns: 1, cpu: 0, pid: parent, tid: parent, comm: Names::UNKNOWN, stack: None, kind }
        };
        let mut family = Family::of(10);
        [fork(10, 11), fork(11, 12), fork(1, 20), fork(20, 21)].iter().for_each(|event| family.meet(event));
        assert_eq!([10, 11, 12, 20, 21].map(|id| family.has(id)), [true, true, true, false, false]);
    }
}
