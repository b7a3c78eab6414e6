//! Every decision on which kernels differ, as data; each field is independent of the others.

use crate::history::choices::{FamilyShift, History, LazyReferences};

/// How many tags a CPU uses, and which it recycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// One context, no PCID: CR3 is written as kernels wrote it before PCIDs.
    Off,
    /// 1 to 15 slots, recycled in turn.
    RoundRobin(u8),
    /// 1 to 15 slots, the one used longest ago is recycled.
    LeastRecent(u8),
}

/// What a CPU does with the user space when it goes idle or runs a kernel thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lazy {
    /// Loads the kernel's tables.
    Off,
    /// Keeps the space loaded; the first request interrupts it, and it then loads the kernel's tables. From then on
    /// only a request that trims the set interrupts it, until it runs the space again.
    InterruptOnce,
    /// Keeps the space loaded; is interrupted only when page tables are freed (INV-5).
    SkipUnlessTablesFreed,
}

/// When a CPU's bit leaves the set of a space that it no longer runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuSetUpkeep {
    /// At each switch away. Under [`LazyReferences::Awaited`] a CPU that leaves a space which it holds lazily stays in
    /// the set until it has run that space again.
    Exact,
    /// Never at a switch. Each `every`-th generation of the space interrupts all CPUs in the set, and those that run
    /// something else leave it; 0 for never.
    Trimmed {
        /// A power of two, or 0.
        every: u32,
    },
    /// The same, and whenever page tables are freed, as Linux 6 does.
    TrimmedWithTables {
        /// A power of two, or 0.
        every: u32,
    },
}

/// How a number of pages is compared with its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// More than the limit: everything.
    Above,
    /// The limit or more: everything.
    AtLeast,
}

/// When a range is flushed page by page and when everything is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeRule {
    /// A limit in pages of the range's stride; 0 with [`Compare::Above`] for always everything.
    Ceiling {
        /// The limit.
        pages: u32,
        /// Its comparison.
        compare: Compare,
    },
    /// The rule of older kernels; there is none without the feature `history`.
    FamilyShift(FamilyShift),
}

/// How the user half is kept true under page-table isolation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// One half, kernel pages global.
    Off,
    /// Two halves with two PCIDs, kernel pages not global; user pages as the [`UserFlush`] knob says.
    On,
}

/// The user half's flush; can be switched while the machine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserFlush {
    /// INVPCID page by page, now.
    Invpcid,
    /// One flushing CR3 write on the way back to user mode.
    DeferredCr3,
}

/// When the initiator flushes its own TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalFlush {
    /// Before it interrupts the others.
    BeforeRemote,
    /// While they work.
    WhileRemote,
}

/// A point in the space of all these choices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is documented at its type")]
pub struct Policy {
    pub tags: Tags,
    pub lazy: Lazy,
    pub lazy_references: LazyReferences,
    pub cpu_set: CpuSetUpkeep,
    pub range: RangeRule,
    pub isolation: Isolation,
    pub user_flush: UserFlush,
    pub local_flush: LocalFlush,
    pub history: History,
}

impl Policy {
    /// Slots that each CPU uses: 1 without PCIDs.
    ///
    /// # Panics
    /// If the policy asks for 0 or more than 15.
    #[must_use]
    pub const fn slots(&self) -> usize {
        let slots = match self.tags {
            Tags::Off => 1,
            Tags::RoundRobin(n) | Tags::LeastRecent(n) => n as usize,
        };
        assert!(slots != 0 && slots <= crate::asid::MAX_SLOTS, "a policy has 1 to 15 slots");
        slots
    }
}

impl RangeRule {
    /// True if `pages` pages of a space with `active_pages` mapped pages are to be flushed as everything.
    #[must_use]
    #[inline]
    pub const fn is_everything(&self, pages: u64, active_pages: u64) -> bool {
        match *self {
            Self::Ceiling { pages: limit, compare: Compare::Above } => pages > limit as u64,
            Self::Ceiling { pages: limit, compare: Compare::AtLeast } => pages >= limit as u64,
            Self::FamilyShift(ref rule) => rule.is_everything(pages, active_pages),
        }
    }

    /// The most pages that go one by one, if the rule is the same for every space.
    pub(crate) const fn ceiling(&self) -> Option<u32> {
        match *self {
            Self::Ceiling { pages, compare: Compare::Above } => Some(pages),
            Self::Ceiling { pages, compare: Compare::AtLeast } => Some(pages.saturating_sub(1)),
            Self::FamilyShift(_) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_compared_as_said() {
        let above = RangeRule::Ceiling { pages: 33, compare: Compare::Above };
        let at_least = RangeRule::Ceiling { pages: 32, compare: Compare::AtLeast };
        assert!(!above.is_everything(33, 0) && above.is_everything(34, 0));
        assert!(!at_least.is_everything(31, 0) && at_least.is_everything(32, 0));
        assert!(RangeRule::Ceiling { pages: 0, compare: Compare::Above }.is_everything(1, 0));
    }
}
