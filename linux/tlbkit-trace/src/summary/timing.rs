//! Measures how long flushes take. If a function that was called across CPUs had exactly one flush in it, the time of
//! the call is taken for the time of the flush.
//!
//! This needs neither the name nor the address of a function, so it works for a kernel whose symbols are hidden.

use crate::event::{FlushReason, FlushSize};

/// The most CPUs that a trace may have: no machine on which Linux runs has more. Events of CPUs with higher numbers,
/// which only a hostile trace has, are left out.
pub const MOST_CPUS: u32 = 8192;

/// How deep calls of functions are followed that run within each other. Interrupts do not nest deeper.
const MAX_DEPTH: usize = 8;

#[derive(Default)]
pub(super) struct Timing {
    open: Vec<Vec<Call>>,
    floor_ns: Option<u64>,
}

struct Call {
    begin_ns: u64,
    flushed: Flushed,
}

/// What happened in a call that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// There was one flush, and the call took this long, in nanoseconds.
    Flush(FlushReason, FlushSize, u64),
    /// There were several flushes, or one in a call whose time is not known.
    Flushes,
    /// There was no flush.
    WithoutFlush,
}

#[derive(Clone, Copy)]
enum Flushed {
    Nothing,
    Once(FlushReason, FlushSize),
    Often,
}

impl Timing {
    /// A call begins on `cpu`.
    pub(super) fn begin(&mut self, cpu: u32, begin_ns: u64) {
        if cpu >= MOST_CPUS {
            return;
        }
        if self.open.len() <= cpu as usize {
            self.open.resize_with(cpu as usize + 1, Vec::new);
        }
        let calls = &mut self.open[cpu as usize];
        // So many open calls mean that events of their ends were lost.
        if calls.len() == MAX_DEPTH {
            calls.clear();
        }
        calls.push(Call { begin_ns, flushed: Flushed::Nothing });
    }

    /// A flush happens on `cpu`. It belongs to the innermost call there, if there is one.
    pub(super) fn flush(&mut self, cpu: u32, reason: FlushReason, size: FlushSize) {
        // The sender notes that it sends interrupts, which is not a flush.
        if reason == FlushReason::RemoteSendIpi {
            return;
        }
        if let Some(call) = self.open.get_mut(cpu as usize).and_then(|calls| calls.last_mut()) {
            call.flushed = match call.flushed {
                Flushed::Nothing => Flushed::Once(reason, size),
                Flushed::Once(..) | Flushed::Often => Flushed::Often,
            };
        }
    }

    /// The innermost call on `cpu` ends. None if its begin was not seen.
    pub(super) fn end(&mut self, cpu: u32, end_ns: u64) -> Option<Ended> {
        let call = self.open.get_mut(cpu as usize)?.pop()?;
        let took_ns = end_ns.checked_sub(call.begin_ns);
        Some(match (call.flushed, took_ns) {
            (Flushed::Once(reason, size), Some(took_ns)) => Ended::Flush(reason, size, took_ns),
            (Flushed::Once(..), None) | (Flushed::Often, _) => Ended::Flushes,
            (Flushed::Nothing, took_ns) => {
                self.floor_ns = self.floor_ns.into_iter().chain(took_ns).min();
                Ended::WithoutFlush
            }
        })
    }

    /// The shortest call without a flush, in nanoseconds; see [`Summary::floor_ns`](super::Summary::floor_ns).
    pub(super) fn floor_ns(&self) -> Option<u64> {
        self.floor_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_with_one_flush_is_that_flush() {
        let mut timing = Timing::default();
        timing.begin(1, 100);
        timing.flush(1, FlushReason::RemoteShootdown, FlushSize::Pages(3));
        let flush = Ended::Flush(FlushReason::RemoteShootdown, FlushSize::Pages(3), 250);
        assert_eq!(timing.end(1, 350), Some(flush));
        assert_eq!(timing.floor_ns(), None);
    }

    #[test]
    fn other_cpus_senders_notes_and_calls_with_two_flushes_do_not_count() {
        let mut timing = Timing::default();
        timing.begin(0, 100);
        timing.flush(1, FlushReason::LocalMmShootdown, FlushSize::All);
        timing.flush(0, FlushReason::RemoteSendIpi, FlushSize::All);
        assert_eq!(timing.end(0, 140), Some(Ended::WithoutFlush));
        assert_eq!(timing.floor_ns(), Some(40));
        timing.begin(0, 200);
        timing.flush(0, FlushReason::LocalMmShootdown, FlushSize::All);
        timing.flush(0, FlushReason::LocalMmShootdown, FlushSize::All);
        assert_eq!(timing.end(0, 210), Some(Ended::Flushes));
        assert_eq!(timing.end(0, 220), None, "nothing is open");
    }

    #[test]
    fn an_inner_call_does_not_end_the_outer() {
        let mut timing = Timing::default();
        timing.begin(0, 0);
        timing.begin(0, 10);
        assert_eq!(timing.end(0, 20), Some(Ended::WithoutFlush));
        timing.flush(0, FlushReason::LocalMmShootdown, FlushSize::All);
        let flush = Ended::Flush(FlushReason::LocalMmShootdown, FlushSize::All, 50);
        assert_eq!(timing.end(0, 50), Some(flush));
    }
}
