//! The choices of older kernels, beside those of [`Policy`](crate::Policy).

use super::tables::{Foreign, TableFree};

/// Whether the CPUs that run the kernel's own tables are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelSet {
    /// They are not: nobody ever reads the set.
    Unwritten,
    /// They are, as kernels did for no reason until 2018: the most contended line of the machine.
    Written,
}

/// Whether a range is searched for large pages before the choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargePageWalk {
    /// It is: the page tables are walked over the range, and one large page makes it a full flush.
    Walk,
    /// It is not.
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

/// How a lazily loaded space is kept from being freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LazyReferences {
    /// By a count on the space, two locked operations an idle period.
    Counted,
    /// By nothing: destroy interrupts the CPUs that still hold it.
    ShotDown,
}

/// Whether flushes are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accounting {
    /// They are not, and cost nothing.
    Off,
    /// By reason x local, remote, kernel, and by size with cycles.
    On,
}

/// What a policy takes from older kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is documented at its type")]
pub struct History {
    pub kernel_set: KernelSet,
    pub batching: Batching,
    pub table_free: TableFree,
    pub foreign: Foreign,
    pub lazy_references: LazyReferences,
    pub accounting: Accounting,
}

impl History {
    /// Nothing: what a build without the feature always does.
    pub const NONE: Self = Self {
        kernel_set: KernelSet::Unwritten,
        batching: Batching::Range,
        table_free: TableFree::AtDestroyUnlessLow,
        foreign: Foreign::DirectMap,
        lazy_references: LazyReferences::ShotDown,
        accounting: Accounting::Off,
    };

    /// True if a gather flushes what is named to it at once, and not at its end.
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

    /// The choices as [`flag`]s.
    pub(crate) fn flags(&self) -> u32 {
        let mut flags = 0;
        let mut set = |condition: bool, flag: u32| flags |= if condition { flag } else { 0 };
        set(self.lazy_references == LazyReferences::Counted, flag::COUNTED);
        set(self.kernel_set == KernelSet::Written, flag::KERNEL_SET);
        set(self.accounting == Accounting::On, flag::COUNTS);
        flags
    }
}

/// The choices as bits, above those of `cpu_state.rs`.
pub(crate) mod flag {
    /// Lazy references are counted.
    pub(crate) const COUNTED: u32 = 1 << 16;
    /// The kernel's own set is written.
    pub(crate) const KERNEL_SET: u32 = 1 << 17;
    /// Flushes are counted.
    pub(crate) const COUNTS: u32 = 1 << 18;
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
