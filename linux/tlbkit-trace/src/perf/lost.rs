//! Events that the recorder had no room for: told when it happens, and from 6.1 on counted again at its end.
//!
//! That last count is the kernel's own, and has no time. It holds what was told before and what nobody told.

use super::attr::Stamp;
use super::bytes::Bytes;
use crate::event::{Event, EventKind};
use crate::names::Names;
use linux_perf_event_reader::RecordType;

/// What was counted at the end.
#[derive(Default)]
pub(super) struct Losses {
    counted: u64,
}

impl Losses {
    /// Takes a record of either kind; an event, if it says when.
    pub(super) fn take(&mut self, kind: RecordType, mut b: Bytes<'_>, stamp: Stamp) -> Option<Event> {
        let is_named = kind == RecordType::LOST;
        let count = if is_named { b.u64().and_then(|_| b.u64()) } else { b.u64() };
        let count = count.unwrap_or(1);
        if !is_named && stamp.time_ns == 0 {
            self.counted = self.counted.saturating_add(count);
            return None;
        }
        let Stamp { time_ns, cpu, pid, tid } = stamp;
        let kind = EventKind::Lost { count };
        Some(Event { time_ns, cpu, pid, tid, comm: Names::UNKNOWN, stack: None, kind })
    }

    /// Behind the last event, at its time: what was counted beyond those that were `told`. Once.
    pub(super) fn untold(&mut self, told: u64, time_ns: u64) -> Option<Event> {
        let count = std::mem::take(&mut self.counted).saturating_sub(told);
        let kind = EventKind::Lost { count };
        (count > 0).then_some(Event { time_ns, cpu: 0, pid: -1, tid: -1, comm: Names::UNKNOWN, stack: None, kind })
    }
}
