//! Counts flushes by cause: the system call that the thread was in, or the fault that it had just before.

use crate::event::{Event, EventKind, FAULT_WINDOW_NS, FaultMode, FlushReason, MAX_THREADS, Syscall};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// What caused a flush.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// The thread was in this system call.
    Call(Syscall),
    /// The thread had a page fault in user mode just before. Mostly the kernel copied a shared page.
    Fault,
    /// Neither was recorded: it may have been reclaim, migration, or a system call that is not traced.
    Unknown,
}

impl Cause {
    /// Short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Call(call) => call.label(),
            Self::Fault => "user fault",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Default)]
pub(super) struct Causes {
    threads: FxHashMap<i32, Doing>,
    counts: BTreeMap<Cause, u64>,
}

#[derive(Clone, Copy, Default)]
struct Doing {
    call: Option<Syscall>,
    fault_ns: Option<u64>,
}

impl Causes {
    /// Learns from `event` which system call its thread is in, and when it had a fault.
    pub(super) fn see(&mut self, event: &Event) {
        match event.kind {
            EventKind::Enter { call, .. } => self.thread(event.tid).call = Some(call),
            EventKind::Leave { .. } => self.thread(event.tid).call = None,
            EventKind::Fault { mode: FaultMode::User, .. } => self.thread(event.tid).fault_ns = Some(event.time_ns),
            EventKind::Exit { tid, .. } => {
                // An ending thread still flushes when its memory is freed, in the call that it is in. Only a new thread
                // of this number begins without one.
                self.thread(tid).fault_ns = None;
            }
            EventKind::Fork { child, .. } => {
                self.threads.remove(&child);
            }
            _ => {}
        }
    }

    fn thread(&mut self, tid: i32) -> &mut Doing {
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
        }
        self.threads.entry(tid).or_default()
    }

    /// Counts a flush by its cause, if the thread itself asked for it. Switches and answers to other CPUs are not
    /// counted.
    pub(super) fn count(&mut self, event: &Event, reason: FlushReason) {
        use FlushReason::{LocalMmShootdown, LocalShootdown, RemoteSendIpi};
        if matches!(reason, LocalMmShootdown | LocalShootdown | RemoteSendIpi) {
            *self.counts.entry(self.cause(event)).or_default() += 1;
        }
    }

    fn cause(&self, event: &Event) -> Cause {
        let Some(doing) = self.threads.get(&event.tid) else { return Cause::Unknown };
        if let Some(call) = doing.call {
            return Cause::Call(call);
        }
        let is_recent = |fault_ns: u64| event.time_ns.saturating_sub(fault_ns) <= FAULT_WINDOW_NS;
        if doing.fault_ns.is_some_and(is_recent) { Cause::Fault } else { Cause::Unknown }
    }

    pub(super) fn rows(&self) -> Vec<(Cause, u64)> {
        let mut rows: Vec<_> = self.counts.iter().map(|(&cause, &flushes)| (cause, flushes)).collect();
        rows.sort_by_key(|&(cause, flushes)| (std::cmp::Reverse(flushes), cause));
        rows
    }
}
