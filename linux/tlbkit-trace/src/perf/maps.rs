//! Mappings of processes: the recorder first tells of those that exist already, and then of each new one.

use super::bytes::Bytes;
use crate::event::{Event, EventKind};
use crate::names::Names;
use linux_perf_event_reader::RecordType;
use std::collections::VecDeque;

/// The most mappings without a time that are kept. No machine has more at once.
const MAX_EARLIER: usize = 1 << 20;

/// The event of a record of a mapping, whose time and CPU are still 0. None for a mapping of the kernel, or if the
/// record is too short.
pub(super) fn map(mut b: Bytes<'_>, kind: RecordType, names: &mut Names) -> Option<Event> {
    let (pid, tid) = (b.i32()?, b.i32()?);
    let (address, bytes, offset) = (b.u64()?, b.u64()?, b.u64()?);
    let mut protection = 0;
    if kind == RecordType::MMAP2 {
        // The number of the device and of the file on it, or the build id of the file.
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

/// Mappings from before the recording, whose records have no time. They wait for the first event that has a time, and
/// get its time.
#[derive(Default)]
pub(super) struct Earlier {
    undated: Vec<Event>,
    ready: VecDeque<Event>,
}

impl Earlier {
    /// Takes the next event. Returns it at once if no mapping waits for it. Otherwise it comes out of [`Earlier::pop`],
    /// after the mappings.
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

    /// The next of the events that waited, if there is one.
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
