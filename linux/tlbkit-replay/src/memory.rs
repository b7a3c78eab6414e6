//! What kernels do for memory itself, faults and calls that give it back: no policy of flushes changes it, so it is
//! summed up once for all replays of a trace.

use crate::op::{Cause, Fault, Op, OpKind, Who};
use std::collections::BTreeMap;

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

/// What the operations so far come to.
#[derive(Default)]
pub(crate) struct MemorySum(BTreeMap<(Who, Option<Who>, u8), MemoryCharge>);

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
        let key = (op.who(), sparer, kind);
        let Some(charge) = self.0.get_mut(&key) else {
            self.0.insert(key, MemoryCharge { who: op.who(), sparer, what, times: 1 });
            return;
        };
        charge.times += 1;
        if let (MemoryWork::Calls { freed: sum, .. }, MemoryWork::Calls { freed, .. }) = (&mut charge.what, what) {
            *sum += freed;
        }
    }

    pub(crate) fn finish(self) -> Vec<MemoryCharge> {
        self.0.into_values().collect()
    }
}
