//! What processes have mapped: the recorder tells it of those that are there already, and then as it changes.

use super::bytes::Bytes;
use crate::event::{Event, EventKind};
use crate::names::Names;
use linux_perf_event_reader::RecordType;
use std::collections::VecDeque;

/// More mappings than this no machine has at once.
const MAX_EARLIER: usize = 1 << 20;

/// A mapping of a process; none of the kernel's own.
pub(super) fn map(mut b: Bytes<'_>, kind: RecordType, names: &mut Names) -> Option<Event> {
    let (pid, tid) = (b.i32()?, b.i32()?);
    let (address, bytes, offset) = (b.u64()?, b.u64()?, b.u64()?);
    let mut protection = 0;
    if kind == RecordType::MMAP2 {
        // Device and inode, or the build's number.
        b.take(24)?;
        protection = b.u32()?;
        b.take(4)?;
    }
    if pid <= 0 {
        return None;
    }
    let kind = EventKind::Map { address, bytes, offset, protection, file: names.add_bytes(b.rest()) };
    Some(Event { time_ns: 0, cpu: 0, pid, tid, comm: Names::UNKNOWN, stack: None, kind })
}

/// What was mapped before the recording has no time. It waits for the first event that has one, and gets that.
#[derive(Default)]
pub(super) struct Earlier {
    undated: Vec<Event>,
    ready: VecDeque<Event>,
}

impl Earlier {
    /// Takes the next event, and gives it back at once if nothing waits for it.
    pub(super) fn pass(&mut self, event: Event) -> Option<Event> {
        if event.time_ns == 0 && matches!(event.kind, EventKind::Map { .. }) {
            // A hostile file does not get more memory than this.
            if self.undated.len() < MAX_EARLIER {
                self.undated.push(event);
            }
            return None;
        }
        if self.undated.is_empty() {
            debug_assert!(self.ready.is_empty(), "what is ready goes first");
            return Some(event);
        }
        let time_ns = event.time_ns;
        self.ready.extend(self.undated.drain(..).map(|map| Event { time_ns, ..map }));
        self.ready.push_back(event);
        None
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_time_gets_that_of_the_first_event() {
        let at = |time_ns, kind| Event { time_ns, cpu: 0, pid: 1, tid: 1, comm: Names::UNKNOWN, stack: None, kind };
        let map = EventKind::Map { address: 4096, bytes: 4096, offset: 0, protection: 5, file: Names::UNKNOWN };
        let lost = EventKind::Lost { count: 1 };
        let mut earlier = Earlier::default();
        assert_eq!(earlier.pass(at(0, map)), None);
        assert_eq!(earlier.pop(), None);
        assert_eq!(earlier.pass(at(70, lost)), None);
        let popped: Vec<_> = std::iter::from_fn(|| earlier.pop()).map(|event| (event.time_ns, event.kind)).collect();
        assert_eq!(popped, [(70, map), (70, lost)]);
        assert_eq!(earlier.pass(at(80, map)), Some(at(80, map)), "nothing waits any more");
    }
}
