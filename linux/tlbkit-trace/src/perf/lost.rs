//! Events that were lost because the recorder's buffer was full.
//!
//! A record tells of such a loss when it happens. From Linux 6.1 on the kernel also counts all lost events, and the
//! recorder writes that count at its end, without a time. The count includes the losses of which records have told.

use super::attr::Stamp;
use super::bytes::Bytes;
use crate::event::{Event, EventKind};
use crate::names::Names;
use linux_perf_event_reader::RecordType;

/// The kernel's own count of lost events, which comes at the end of the recording.
#[derive(Default)]
pub(super) struct Losses {
    counted: u64,
}

impl Losses {
    /// Takes a record of either kind. Returns an event if the record has a time, and otherwise adds it to the final
    /// count.
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

    /// The event that tells of losses which the final count has beyond those that were `told`. Must be asked for after
    /// the last event, whose time is `time_ns`. There is such an event at most once.
    pub(super) fn untold(&mut self, told: u64, time_ns: u64) -> Option<Event> {
        let count = std::mem::take(&mut self.counted).saturating_sub(told);
        let kind = EventKind::Lost { count };
        (count > 0).then_some(Event { time_ns, cpu: 0, pid: -1, tid: -1, comm: Names::UNKNOWN, stack: None, kind })
    }
}
