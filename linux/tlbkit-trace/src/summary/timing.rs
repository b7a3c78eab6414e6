//! How long flushes take: a function that ran across CPUs and had exactly one flush in it was that flush.
//!
//! So no function's name or address is needed, and a kernel whose symbols are hidden is measured as well.

use crate::event::{FlushReason, FlushSize};

/// No machine that Linux runs on has more CPUs; what a hostile trace says of others is left out.
pub const MOST_CPUS: u32 = 8192;

/// Calls within calls: interrupts nest no deeper.
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

/// What a call was that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// One flush, and how long it took.
    Flush(FlushReason, FlushSize, u64),
    /// Several flushes, or one whose time is not known.
    Flushes,
    WithoutFlush,
}

#[derive(Clone, Copy)]
enum Flushed {
    Nothing,
    Once(FlushReason, FlushSize),
    Often,
}

impl Timing {
    pub(super) fn begin(&mut self, cpu: u32, begin_ns: u64) {
        if cpu >= MOST_CPUS {
            return;
        }
        if self.open.len() <= cpu as usize {
            self.open.resize_with(cpu as usize + 1, Vec::new);
        }
        let calls = &mut self.open[cpu as usize];
        // Lost ends would pile up.
        if calls.len() == MAX_DEPTH {
            calls.clear();
        }
        calls.push(Call { begin_ns, flushed: Flushed::Nothing });
    }

    /// A flush on `cpu`, within the innermost call if there is one.
    pub(super) fn flush(&mut self, cpu: u32, reason: FlushReason, size: FlushSize) {
        // The sender's note is not its work.
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

    /// The innermost call of `cpu` ends; none if its begin was not seen.
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
