//! Deferred flushes: whether a batch, or an issued gather, has taken translations of a space out of the page tables and
//! not flushed them yet (Linux: `mm->tlb_flush_batched`). Unlike Linux' `mm_tlb_flush_pending` it does not count
//! gathers that were neither flushed nor issued.
//!
//! **The rule.** A CPU that finds a PTE cleared by a batch must not go on before the flush of that batch, or a flush of
//! its own (C-28, C-75).
//!
//! **The race.**
//!
//! ```text
//!   batch (TlbBatch::unmap, flush)                 CPU that finds the PTE cleared (TlbGather::flush, drain)
//!   lock; clear the PTE                            lock; the PTE is clear; unlock
//!   owed += 1; advance the generation              is owed 0?                  (Acquire)
//!   unlock                                         if not: flush the whole space
//!   flush, on every CPU
//!   owed -= 1                   (Release)
//! ```
//! The count rises before the page-table lock is dropped. So a CPU that finds the PTE cleared finds the count too, or
//! that it has fallen again, and then the flush is over. A CPU that flushes something of the space anyway need not
//! look: its generation is two above what the other CPUs have, so they flush everything (INV-4). That argument needs
//! a generation which is compared. Kernel addresses have none, and INVLPGB flushes the pages that it names whatever a
//! CPU has missed. So each flush of kernel addresses looks, and on a machine with INVLPGB each flush: it becomes one of
//! everything if one is owed.
//!
//! Every sixty-fourth space shares a count, and some share it with the kernel. That costs a flush now and then that
//! nobody needs, and saves every space a word. A batch that is never flushed leaves its counts behind: its translations
//! may be cached anywhere, for ever.

use crate::space::SpaceId;
use crate::sync::{AtomicU32, Ordering, array_of, const_unless_loom};

/// A few are enough for loom, which looks at each.
const COUNTS: usize = if cfg!(loom) { 2 } else { 64 };

/// How many batches and issued gathers owe a flush, by space. On separate cache lines: its neighbours in a
/// [`Tlb`](crate::Tlb) are read by every call, and batches write here (C-80).
#[repr(align(64))]
pub(crate) struct Owed([AtomicU32; COUNTS]);

/// The counts that one batch has raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Debts(u64);

impl Debts {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub(crate) const fn in_both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Owed {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(array_of!(AtomicU32::new(0); COUNTS))
        }
    }

    /// A batch is about to record translations of `space`: its count rises, once for each batch.
    #[inline]
    pub(crate) fn add(&self, space: SpaceId, debts: &mut Debts) {
        let index = index_of(space);
        if debts.0 & 1 << index == 0 {
            debts.0 |= 1 << index;
            // Relaxed: ordered by the page-table lock, which is held, for every CPU that finds the PTE cleared.
            self.0[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The batch has been flushed.
    pub(crate) fn settle(&self, debts: Debts) {
        let mut raised = debts.0;
        while raised != 0 {
            // Release: the flush is over on every CPU; partner is the Acquire in `is_owed`.
            self.0[raised.trailing_zeros() as usize % COUNTS].fetch_sub(1, Ordering::Release);
            raised &= raised - 1;
        }
    }

    /// True if a flush of `space` may be owed.
    pub(crate) fn is_owed(&self, space: SpaceId) -> bool {
        // Acquire: partner is the Release in `settle`: a CPU that finds nothing owed comes after the flush.
        self.0[index_of(space)].load(Ordering::Acquire) != 0
    }
}

const fn index_of(space: SpaceId) -> usize {
    space.0 as usize % COUNTS
}
