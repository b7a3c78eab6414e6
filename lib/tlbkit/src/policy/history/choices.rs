//! The choices of older kernels, beside those of [`Policy`](crate::Policy).

use super::ENABLED;
use super::tables::{Foreign, Nested, SharedDirty, TableFree};

/// Whether a CPU set is kept of the CPUs that run on the kernel's own page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelSet {
    /// No: nobody ever reads it.
    Unwritten,
    /// Yes, as in Linux until 2018, where `init_mm`'s was the most contended one (document 001).
    Written,
}

/// Whether a range is searched for large pages before the rule is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargePageWalk {
    /// Yes: the page tables are walked over the range, and one large page makes it a full flush.
    Walk,
    /// No.
    Skip,
}

/// Linux 3.6 to 3.16: more pages than `min(active pages of the space, entries) >> shift` flush everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FamilyShift {
    /// By CPU family; -1 for always everything.
    pub shift: i8,
    /// Entries of the last-level dTLB for 4 KiB pages.
    pub entries: u16,
    /// The page-table walk before it.
    pub walk: LargePageWalk,
}

impl FamilyShift {
    /// The rule of `flush_tlb_mm_range` in Linux 3.13.
    pub(crate) const fn is_everything(&self, pages: u64, active_pages: u64) -> bool {
        if self.shift < 0 {
            return true;
        }
        let active = if active_pages < self.entries as u64 { active_pages } else { self.entries as u64 };
        pages > active >> self.shift
    }

    pub(crate) const fn walks(&self) -> bool {
        matches!(self.walk, LargePageWalk::Walk)
    }
}

/// When invalidations go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batching {
    /// Each at the time of its request.
    None,
    /// Up to so many single pages (at most 16) at the update point, then one full flush.
    Packet(u8),
    /// One range that covers them all, at the update point, judged by the [`RangeRule`](crate::RangeRule).
    Range,
}

/// What becomes of the CPUs that hold a space in lazy TLB mode when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LazyReferences {
    /// Each finds a notice when it leaves by itself, and the last one notifies the kernel: nobody is interrupted, and a
    /// CPU that goes idle counts nothing.
    Awaited,
    /// They are interrupted, and leave.
    ShotDown,
    /// They have been counted all along, by two locked operations for each idle period; the last one notifies the
    /// kernel. Only with the feature `history`.
    Counted,
}

impl LazyReferences {
    pub(crate) const fn is_counted(self) -> bool {
        ENABLED && matches!(self, Self::Counted)
    }
}

/// Whether flushes are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accounting {
    /// No, and so it costs nothing.
    Off,
    /// Yes: by reason x local, remote, kernel, and by size with cycles.
    On,
}

/// What a policy takes from older kernels; anything but [`NONE`](Self::NONE) needs the feature `history`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is documented at its type")]
pub struct History {
    pub kernel_set: KernelSet,
    pub batching: Batching,
    pub table_free: TableFree,
    pub foreign: Foreign,
    pub accounting: Accounting,
    pub nested: Nested,
    pub shared_dirty: SharedDirty,
}

impl History {
    /// Nothing: what a build without the feature does.
    pub const NONE: Self = Self {
        kernel_set: KernelSet::Unwritten,
        batching: Batching::Range,
        table_free: TableFree::AtDestroyUnlessLow,
        foreign: Foreign::DirectMap,
        accounting: Accounting::Off,
        nested: Nested::Range,
        shared_dirty: SharedDirty::AtEnd,
    };

    /// True if nothing is taken from older kernels.
    pub(crate) const fn is_none(&self) -> bool {
        matches!(*self, Self::NONE)
    }

    /// True if a gather flushes each translation at once, and not all at its end.
    #[must_use]
    pub const fn sends_at_once(&self) -> bool {
        matches!(self.batching, Batching::None)
    }

    /// When page-table pages are freed.
    #[must_use]
    pub const fn table_free(&self) -> TableFree {
        self.table_free
    }

    /// How foreign page tables are reached.
    #[must_use]
    pub const fn foreign(&self) -> Foreign {
        self.foreign
    }

    /// What operations that overlap flush at their ends.
    #[must_use]
    pub const fn nested(&self) -> Nested {
        self.nested
    }

    /// When dirty pages of shared memory are flushed.
    #[must_use]
    pub const fn shared_dirty(&self) -> SharedDirty {
        self.shared_dirty
    }

    /// The choices as [`flag`]s.
    pub(crate) const fn flags(&self) -> u32 {
        let mut flags = 0;
        if matches!(self.kernel_set, KernelSet::Written) {
            flags |= flag::KERNEL_SET;
        }
        if matches!(self.accounting, Accounting::On) {
            flags |= flag::ACCOUNTING;
        }
        flags
    }
}

/// The choices as bits, above those of `cpu/mod.rs`: no bits in a build that has none of this.
pub(crate) mod flag {
    use super::ENABLED;

    /// Lazy references are counted.
    pub(crate) const LAZY_COUNTED: u32 = if ENABLED { 1 << 16 } else { 0 };
    /// The kernel's own CPU set is written.
    pub(crate) const KERNEL_SET: u32 = if ENABLED { 1 << 17 } else { 0 };
    /// Flushes are counted.
    pub(crate) const ACCOUNTING: u32 = if ENABLED { 1 << 18 } else { 0 };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_family_shift_counts_active_entries() {
        let rule = |shift| FamilyShift { shift, entries: 512, walk: LargePageWalk::Skip };
        // Ivy Bridge: 129 pages go one by one with shift 1 and at once with shift 2 (documents 003 and 004).
        assert!(!rule(1).is_everything(129, 100_000));
        assert!(rule(2).is_everything(129, 100_000));
        assert!(rule(1).is_everything(33, 64) && !rule(1).is_everything(32, 64));
        assert!(rule(-1).is_everything(1, 100_000));
    }
}
