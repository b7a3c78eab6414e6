//! Whether some batch has taken translations of a space away and not flushed them yet.
//!
//! A CPU that finds an entry gone which a batch took out must not go on before the batch's flush, or one of its own
//! (C-28, C-75):
//!
//! ```text
//!   batch (TlbBatch::unmap, flush)            one that finds the entry gone (TlbGather::flush, drain)
//!   lock; entry := nothing                    lock; the entry is nothing; unlock
//!   owed += 1; advance the generation         is owed 0?                       (Acquire)
//!   unlock                                    if not: flush the whole space
//!   flush, on every CPU
//!   owed -= 1                   (Release)
//! ```
//! Naming comes before the lock of the page table is dropped, so whoever finds the entry gone finds the count too, or
//! that it has fallen, and then the flush is over. Who has something of its own to flush need not look: its generation
//! is two above what the others have, so it flushes everything (INV-4). The kernel's addresses have no generation: who
//! flushes some of them looks all the same, and flushes all if any flush of them is owed.
//!
//! Spaces share their counts, each with every sixty-fourth, and some with the kernel: one that is not meant is flushed
//! in vain, and no space pays for a word. A batch that is never flushed leaves its counts behind: its translations may
//! be anywhere, for ever.

use crate::address_space::SpaceId;
use crate::sync::{AtomicU32, Ordering, array_of, const_unless_loom};

/// Counts. A few for loom, which looks at each.
const COUNTS: usize = if cfg!(loom) { 2 } else { 64 };

/// Batches that owe a flush, by space. On cache lines of its own: what stands beside it in a machine is read by every
/// call, and batches write here (C-80).
#[repr(align(64))]
pub(crate) struct Owed([AtomicU32; COUNTS]);

/// The counts that one batch has raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Debts(u64);

impl Debts {
    pub(crate) const NONE: Self = Self(0);
}

impl Owed {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(array_of!(AtomicU32::new(0); COUNTS))
        }
    }

    /// A batch is about to name translations of `space`: its count rises, once a batch.
    #[inline]
    pub(crate) fn add(&self, space: SpaceId, debts: &mut Debts) {
        let index = index_of(space);
        if debts.0 & 1 << index == 0 {
            debts.0 |= 1 << index;
            // Relaxed: whoever finds the entry gone finds it by the lock of the page table, which is held.
            self.0[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The batch has been flushed.
    pub(crate) fn settle(&self, debts: Debts) {
        let mut raised = debts.0;
        while raised != 0 {
            // Release: the flush is over on every CPU; partner is the Acquire in `has`.
            self.0[raised.trailing_zeros() as usize % COUNTS].fetch_sub(1, Ordering::Release);
            raised &= raised - 1;
        }
    }

    /// True if a flush of `space` may be owed.
    #[inline]
    pub(crate) fn has(&self, space: SpaceId) -> bool {
        // Acquire: partner is the Release in `settle`: who finds nothing owed comes after the flush.
        self.0[index_of(space)].load(Ordering::Acquire) != 0
    }
}

const fn index_of(space: SpaceId) -> usize {
    space.0 as usize % COUNTS
}
