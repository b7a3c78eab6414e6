//! A process with all processes and threads that it started, as the events of a trace tell.

use crate::event::{Event, EventKind};
use rustc_hash::FxHashSet;

/// The most processes and threads that are remembered. Those that are started beyond it do not count as members.
const MAX_MEMBERS: usize = 1 << 18;

/// A process, its threads, and all processes and threads that these started.
#[derive(Clone, Debug)]
pub struct Family {
    members: FxHashSet<i32>,
}

impl Family {
    /// The family of the process `pid`, which at first has no other member.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        Self { members: FxHashSet::from_iter([pid]) }
    }

    /// Learns from `event` whether a member started a process or a thread, which is a member from then on, also after
    /// it has ended. Events must come in order of time.
    pub fn meet(&mut self, event: &Event) {
        if let EventKind::Fork { parent, child, .. } = event.kind
            && self.members.contains(&parent)
            && self.members.len() < MAX_MEMBERS
        {
            self.members.insert(child);
        }
    }

    /// Whether the process or thread with the number `id` is a member.
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
