//! The work that kernels do for memory itself: page faults, and system calls that give memory back. No policy of
//! flushes changes this work, so it is summed up once for all replays of a trace.

use crate::op::{Caller, Cause, Fault, Op, OpKind};
use rustc_hash::FxHashMap;

/// All work of one kind for one caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryCharge {
    /// The caller to which the work is charged.
    pub(crate) who: Caller,
    /// The caller whose system calls lead to this work. If these calls are left out of a replay, so is the work.
    pub(crate) sparer: Option<Caller>,
    pub(crate) what: MemoryWork,
    /// How often it was done.
    pub(crate) times: u64,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryWork {
    /// Page faults that brought pages.
    Faults(Fault),
    /// System calls that gave `freed` pages back together. A lazy one only marks them, for the kernel to take later.
    Calls { freed: u64, is_lazy: bool },
}

/// The caller that is charged, the caller whose calls lead to the work, and the kind of work.
type Key = (Caller, Option<Caller>, u8);

/// The sum over the operations so far.
#[derive(Default)]
pub(crate) struct MemorySum {
    sums: Vec<(Key, MemoryCharge)>,
    places: FxHashMap<Key, usize>,
    /// The index at which the last operation was added. The next one mostly belongs there too.
    last: usize,
}

impl MemorySum {
    pub(crate) fn add(&mut self, op: &Op) {
        let (sparer, what) = match op.kind {
            OpKind::Touch { fault, .. } => (op.because(), MemoryWork::Faults(fault)),
            OpKind::Revoke { cause, taken, .. } if cause.gives_back() => {
                (Some(op.caller()), MemoryWork::Calls { freed: taken.freed, is_lazy: cause == Cause::Free })
            }
            _ => return,
        };
        let kind = match what {
            MemoryWork::Faults(fault) => fault as u8,
            MemoryWork::Calls { .. } => u8::MAX,
        };
        let who = op.caller();
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
