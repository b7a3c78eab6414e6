//! Policies: every decision on which kernels differ, as data.
//!
//! **The rule.** Each field is independent of the others, so that published kernels are points in one space
//! (`presets`), and so are new ideas. A policy never decides *whether* what some CPU may hold is flushed, only how,
//! when and by which CPU.
//!
//! [`Policy`] is fixed when a machine is made; [`Knobs`] can be changed while it runs. `text.rs` reads and prints
//! policies. `history/` has what older kernels chose, behind a feature.

pub(crate) mod history;
pub(crate) mod text;
mod words;

use crate::addr::PAGE_BYTES;
use crate::cpu::asid::MAX_ASIDS;
use crate::sync::{AtomicU64, Ordering, const_unless_loom};
use history::ENABLED;
use history::choices::{FamilyShift, History, LazyReferences};

/// How many ASIDs, and so PCIDs, a CPU uses, and which it recycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// No PCIDs: CR3 is written as before there were any, and each switch flushes.
    Off,
    /// 1 to 15 ASIDs, recycled in turn, as in Linux.
    RoundRobin(u8),
    /// 1 to 15 ASIDs; the one that was used longest ago is recycled, except where up to three spaces too many run in a
    /// ring: then the space goes that ran before the one that the CPU leaves.
    LeastRecent(u8),
}

/// Lazy TLB mode: what a CPU does with the user space when it goes idle or runs a kernel thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lazy {
    /// Loads the kernel's own page tables.
    Off,
    /// Keeps the space loaded. The first flush interrupts it, and it then loads the kernel's own page tables. From then
    /// on only a flush that trims the CPU set interrupts it, until it runs the space again.
    InterruptOnce,
    /// Keeps the space loaded. It is interrupted only when page-table pages are freed (INV-5).
    SkipUnlessTablesFreed,
}

/// When a CPU leaves the CPU set of a space that it no longer runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuSetUpkeep {
    /// At each switch away. Under [`LazyReferences::Awaited`] a CPU that leaves a space which it holds in lazy TLB mode
    /// stays in the set until it has run that space again.
    Exact,
    /// Never at a switch. The flush of each `every`-th generation interrupts all CPUs in the set, and those that run
    /// something else leave it; 0 for never.
    Trimmed {
        /// A power of two, or 0.
        every: u32,
    },
    /// The same, and whenever page-table pages are freed, as in Linux 6.
    TrimmedWithTables {
        /// A power of two, or 0.
        every: u32,
    },
}

/// How a number of pages is compared with its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// More than the limit is everything.
    Above,
    /// The limit or more is everything.
    AtLeast,
}

/// When a range is flushed page by page, and when all of the space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeRule {
    /// A limit in pages of the range's stride (Linux: `tlb_single_page_flush_ceiling`); 0 with [`Compare::Above`] for
    /// always everything.
    Ceiling {
        /// The limit.
        pages: u32,
        /// Its comparison.
        compare: Compare,
    },
    /// The rule of Linux 3.6 to 3.16; only with the feature `history`.
    FamilyShift(FamilyShift),
}

/// Page-table isolation (PTI).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// Off: kernel pages are global.
    Off,
    /// On: a kernel half and a user half with a PCID each, and kernel pages are not global. The user half is flushed as
    /// the [`UserFlush`] knob says.
    On,
}

/// How the user half is flushed; can be changed while the machine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserFlush {
    /// By INVPCID, page by page, at once.
    Invpcid,
    /// By one flushing CR3 write on the way back to user mode.
    DeferredCr3,
}

/// When the initiator flushes its own TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalFlush {
    /// Before it interrupts the other CPUs.
    BeforeRemote,
    /// While they flush.
    WhileRemote,
}

/// Whether INVLPGB is used, on a machine that has it, and for which spaces. Without it this has no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broadcast {
    /// It is not used.
    Off,
    /// For kernel addresses, and for spaces that have a PCID which all CPUs share. A space gets one when a flush by a
    /// CPU that runs it has interrupted so many others; the kernel may ask for it earlier
    /// ([`Cpu::share_pcid`](crate::Cpu::share_pcid)). The move takes about as long as that flush, so by then a space
    /// has paid at least half of what the best choice would have cost it.
    From {
        /// Other CPUs; 0 counts as 1.
        cpus: u32,
    },
}

/// Whether a kernel waits for the flush of what a program gives away with its addresses. The simulated kernel asks for
/// it; the protocol does what its caller calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmapping {
    /// It waits, as for every flush.
    Awaited,
    /// Private pages are retired: frames and addresses come back after a grace period ([`crate::GracePeriods`]).
    Retired,
}

/// Whose the upper page tables of a space are. The kernel makes them; the protocol does what its caller calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Directories {
    /// All CPUs walk the same tables.
    Shared,
    /// Each CPU has tables of its own down to the directories, so that it is known which CPUs can hold a translation
    /// ([`crate::Sharers`]); and each thread maps where no other does, so that few tables are shared.
    OfEachCpu,
}

/// When a responder acknowledges a request. The kernel says so by [`crate::Hardware::acknowledgement`]; the head of
/// `flush/answer.rs` has the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledgement {
    /// When it has flushed.
    AfterFlush,
    /// When it has read the request, where that is allowed: the initiator goes on while the responder flushes.
    BeforeFlush,
}

/// Whether an entry that was taken out with its accessed bit clear is flushed like any other. The kernel takes entries
/// out; the protocol does what its caller calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unaccessed {
    /// It is.
    Flushed,
    /// It is not: a processor sets the bit before it caches a translation, so nobody has it (ABIS). Right only where
    /// software clears the bit of no entry without flushing that before anybody can take the entry out.
    Spared,
}

/// When reclaim flushes clean pages that programs could only read. The kernel reclaims; the protocol does what its
/// caller calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// Before their frames go to the free list.
    Awaited,
    /// When their frames leave it ([`crate::Deferred`]), and earlier where something is about to be written that a CPU
    /// could still read the old way.
    AtReuse,
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
    pub broadcast: Broadcast,
    pub unmapping: Unmapping,
    pub directories: Directories,
    pub acknowledgement: Acknowledgement,
    pub unaccessed: Unaccessed,
    pub reclaim: Reclaim,
    pub history: History,
}

impl Policy {
    /// ASIDs that each CPU uses: 1 without PCIDs.
    ///
    /// # Panics
    /// If the policy asks for 0 or more than 15.
    #[must_use]
    pub const fn asids(&self) -> usize {
        let asids = match self.tags {
            Tags::Off => 1,
            Tags::RoundRobin(n) | Tags::LeastRecent(n) => n as usize,
        };
        assert!(asids != 0 && asids <= MAX_ASIDS, "a policy has 1 to 15 ASIDs");
        asids
    }

    /// # Panics
    /// If the policy asks for something that only a build with the feature `history` does.
    pub(crate) const fn assert_is_supported(&self) {
        let is_counted = matches!(self.lazy_references, LazyReferences::Counted);
        let is_old_rule = matches!(self.range, RangeRule::FamilyShift(_));
        assert!(
            ENABLED || self.history.is_none() && !is_counted && !is_old_rule,
            "the policy does what older kernels did: build with the feature `history`"
        );
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

    /// The most pages that are flushed one by one, if the rule is the same for every space.
    const fn ceiling(&self) -> Option<u32> {
        match *self {
            Self::Ceiling { pages, compare: Compare::Above } => Some(pages),
            Self::Ceiling { pages, compare: Compare::AtLeast } => Some(pages.saturating_sub(1)),
            Self::FamilyShift(_) => None,
        }
    }
}

impl Policy {
    /// Our own default, as the preset `tlbkit` describes it. It is right on any CPU: one without PCIDs does without.
    pub const DEFAULT: Self = TLBKIT.policy;
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A kernel as a point in the space of policies.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name and version of the kernel.
    pub name: &'static str,
    /// What it does, and what of it the fields cannot express.
    pub description: &'static str,
    /// The fields.
    pub policy: Policy,
}

pub(crate) const TLBKIT: Preset = Preset {
    name: "tlbkit",
    description: "our own default: six ASIDs least recently used, the end of a space awaited, CPU set trimmed, \
        local flush while remote",
    policy: Policy {
        tags: Tags::LeastRecent(6),
        lazy: Lazy::SkipUnlessTablesFreed,
        lazy_references: LazyReferences::Awaited,
        cpu_set: CpuSetUpkeep::Trimmed { every: 1024 },
        range: RangeRule::Ceiling { pages: 33, compare: Compare::Above },
        isolation: Isolation::Off,
        user_flush: UserFlush::Invpcid,
        local_flush: LocalFlush::WhileRemote,
        broadcast: Broadcast::From { cpus: 3 },
        unmapping: Unmapping::Awaited,
        directories: Directories::Shared,
        acknowledgement: Acknowledgement::AfterFlush,
        unaccessed: Unaccessed::Flushed,
        reclaim: Reclaim::Awaited,
        history: History::NONE,
    },
};

/// What may be changed while the machine runs. Each flush reads it afresh.
pub struct Knobs {
    user_flush: AtomicU64,
    /// The most pages that are flushed one by one; [`BY_RULE`] while that depends on the space.
    ceiling: AtomicU64,
}

const BY_RULE: u64 = u64::MAX;

const fn word_of(how: UserFlush) -> u64 {
    matches!(how, UserFlush::DeferredCr3) as u64
}

/// More pages than this are never flushed one by one, whatever the ceiling: 1 GiB of base pages, beyond any TLB.
pub const MAX_CEILING_PAGES: u64 = (1 << 30) / PAGE_BYTES;

impl Knobs {
    const_unless_loom! {
        pub(crate) fn new(policy: &Policy) -> Self {
            let ceiling = match policy.range.ceiling() {
                Some(pages) => pages as u64,
                None => BY_RULE,
            };
            Self { user_flush: AtomicU64::new(word_of(policy.user_flush)), ceiling: AtomicU64::new(ceiling) }
        }
    }

    /// Flushes the user half this way from now on.
    pub fn set_user_flush(&self, how: UserFlush) {
        // Relaxed: either way is right at any moment; nothing is ordered by the choice.
        self.user_flush.store(word_of(how), Ordering::Relaxed);
    }

    /// Flushes more than `pages` pages as everything from now on, whatever the policy's rule was; 0 for always.
    /// A range of more than 1 GiB of base pages is everything whatever is said here.
    pub fn set_ceiling(&self, pages: u32) {
        // Relaxed: as above.
        self.ceiling.store(u64::from(pages), Ordering::Relaxed);
    }

    pub(crate) fn user_flush(&self) -> UserFlush {
        // Relaxed: as above.
        if self.user_flush.load(Ordering::Relaxed) == 0 { UserFlush::Invpcid } else { UserFlush::DeferredCr3 }
    }

    pub(crate) fn is_everything(&self, rule: &RangeRule, pages: u64, active_pages: u64) -> bool {
        if pages > MAX_CEILING_PAGES {
            return true;
        }
        // Relaxed: as above.
        match (self.ceiling.load(Ordering::Relaxed), rule) {
            (BY_RULE, RangeRule::FamilyShift(rule)) if ENABLED => rule.is_everything(pages, active_pages),
            (ceiling, _) => pages > ceiling,
        }
    }
}

/// Why translations were taken away: for counting, never for deciding (Linux: `tlb_flush_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// A mapping was removed page by page.
    RemovePte,
    /// A whole space was emptied.
    RemoveAll,
    /// Write permission was taken away.
    WriteProtect,
    /// Fork shared the pages of the parent.
    Fork,
    /// A copy replaced a shared page.
    CopyOnWrite,
    /// A mapping was replaced by another.
    Enter,
    /// A page-table page was freed.
    FreeTable,
    /// A kernel mapping was made over an old one.
    KernelEnter,
    /// A kernel mapping was removed.
    KernelRemove,
    /// The window to foreign page tables was moved.
    ForeignTables,
    /// A page was moved to another frame.
    Migrate,
    /// A space ended.
    Destroy,
}

impl Reason {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::RemovePte,
        Self::RemoveAll,
        Self::WriteProtect,
        Self::Fork,
        Self::CopyOnWrite,
        Self::Enter,
        Self::FreeTable,
        Self::KernelEnter,
        Self::KernelRemove,
        Self::ForeignTables,
        Self::Migrate,
        Self::Destroy,
    ];
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
