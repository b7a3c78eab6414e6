//! What kernels do for memory itself, faults and calls that give it back: no policy of flushes changes it, so it is
//! summed up once for all replays of a trace.

use crate::op::{Cause, Fault, Op, OpKind, Who};
use rustc_hash::FxHashMap;

/// One kind of work, all of one caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryCharge {
    /// Who is charged.
    pub(crate) who: Who,
    /// Whose calls bring it about: it goes with them.
    pub(crate) sparer: Option<Who>,
    pub(crate) what: MemoryWork,
    /// How often.
    pub(crate) times: u64,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryWork {
    /// Pages were faulted in.
    Faults(Fault),
    /// Calls gave so many pages back; those of a lazy one are only marked.
    Calls { freed: u64, is_lazy: bool },
}

/// Who is charged, whose calls bring it about, and for what kind of work.
type Key = (Who, Option<Who>, u8);

/// What the operations so far come to.
#[derive(Default)]
pub(crate) struct MemorySum {
    sums: Vec<(Key, MemoryCharge)>,
    places: FxHashMap<Key, usize>,
    /// Where the last one was added: the next is mostly like it.
    last: usize,
}

impl MemorySum {
    pub(crate) fn add(&mut self, op: &Op) {
        let (sparer, what) = match op.kind {
            OpKind::Touch { fault, .. } => (op.because(), MemoryWork::Faults(fault)),
            OpKind::Revoke { cause, taken, .. } if cause.gives_back() => {
                (Some(op.who()), MemoryWork::Calls { freed: taken.freed, is_lazy: cause == Cause::Free })
            }
            _ => return,
        };
        let kind = match what {
            MemoryWork::Faults(fault) => fault as u8,
            MemoryWork::Calls { .. } => u8::MAX,
        };
        let who = op.who();
        let key = (who, sparer, kind);
        if self.sums.get(self.last).is_none_or(|(last, _)| *last != key) {
            self.last = *self.places.entry(key).or_insert(self.sums.len());
        }
        let Some((_, charge)) = self.sums.get_mut(self.last) else {
            self.sums.push((key, MemoryCharge { who, sparer, what, times: 1 }));
            return;
        };
        charge.times += 1;
        if let (MemoryWork::Calls { freed: sum, .. }, MemoryWork::Calls { freed, .. }) = (&mut charge.what, what) {
            *sum += freed;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<MemoryCharge> {
        self.sums.sort_unstable_by_key(|(key, _)| *key);
        self.sums.into_iter().map(|(_, charge)| charge).collect()
    }
}
