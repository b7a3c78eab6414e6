//! Published kernels as points in the space of policies. What a preset cannot express is said in its description.

use crate::policy::{
    Accounting, Batching, Compare, CpuSetUpkeep, Foreign, Isolation, KernelSet, LargePageWalk, Lazy, LazyReferences,
    LocalFlush, Policy, RangeRule, TableFree, Tags, UserFlush,
};

/// A published kernel.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name and version of the kernel.
    pub name: &'static str,
    /// What it does, and what of it the fields cannot express.
    pub description: &'static str,
    /// The fields.
    pub policy: Policy,
}

const fn ceiling(pages: u32, compare: Compare) -> RangeRule {
    RangeRule::Ceiling { pages, compare }
}

const fn ivy_bridge(shift: i8, walk: LargePageWalk) -> RangeRule {
    RangeRule::FamilyShift { shift, entries: 512, walk }
}

/// Linux before PCIDs: one context, the set cleared at each switch, lazy CPUs interrupted once, gathered ranges.
const LINUX_3_4: Policy = Policy {
    tags: Tags::Off,
    lazy: Lazy::InterruptOnce,
    cpu_set: CpuSetUpkeep::Exact,
    kernel_set: KernelSet::Unwritten,
    range: ceiling(0, Compare::Above),
    batching: Batching::Range,
    table_free: TableFree::AtOnce,
    foreign: Foreign::DirectMap,
    isolation: Isolation::Off,
    user_flush: UserFlush::Invpcid,
    local_flush: LocalFlush::BeforeRemote,
    lazy_references: LazyReferences::Counted,
    accounting: Accounting::Off,
};
const LINUX_3_13: Policy =
    Policy { range: ivy_bridge(1, LargePageWalk::Walk), accounting: Accounting::On, ..LINUX_3_4 };
const LINUX_3_14: Policy =
    Policy { range: ivy_bridge(2, LargePageWalk::Skip), accounting: Accounting::Off, ..LINUX_3_4 };
const LINUX_4_13: Policy = Policy { range: ceiling(33, Compare::Above), ..LINUX_3_4 };
const LINUX_4_14: Policy =
    Policy { tags: Tags::RoundRobin(6), lazy: Lazy::Off, kernel_set: KernelSet::Written, ..LINUX_4_13 };
const LINUX_4_20: Policy = Policy { lazy: Lazy::SkipUnlessTablesFreed, kernel_set: KernelSet::Unwritten, ..LINUX_4_14 };
const TRIMMED_WITH_TABLES: CpuSetUpkeep = CpuSetUpkeep::TrimmedWithTables { every: 1024 };
const LINUX_6_18: Policy = Policy { cpu_set: TRIMMED_WITH_TABLES, local_flush: LocalFlush::WhileRemote, ..LINUX_4_20 };
const NETBSD_5_0: Policy = Policy {
    batching: Batching::None,
    range: ceiling(32, Compare::Above),
    foreign: Foreign::Window,
    lazy_references: LazyReferences::ShotDown,
    ..LINUX_3_4
};
const NETBSD_5_0_BATCHED: Policy = Policy {
    batching: Batching::Packet(6),
    table_free: TableFree::AtDestroyUnlessLow,
    foreign: Foreign::TemporarySwitch,
    local_flush: LocalFlush::WhileRemote,
    ..NETBSD_5_0
};

/// All presets, oldest first within a family.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "tlbkit",
        description: "our own default: six slots least recently used, lazy references shot down, set trimmed, \
            local flush while remote",
        policy: Policy {
            tags: Tags::LeastRecent(6),
            lazy_references: LazyReferences::ShotDown,
            table_free: TableFree::AtDestroyUnlessLow,
            cpu_set: CpuSetUpkeep::Trimmed { every: 1024 },
            ..LINUX_6_18
        },
    },
    Preset {
        name: "linux-3.4",
        description: "every flush of a space is a full one; no PCID; lazy CPUs leave at the first interrupt",
        policy: LINUX_3_4,
    },
    Preset {
        name: "linux-3.13",
        description: "range flush by family shift (here Ivy Bridge's 1) after a page-table walk, flushes \
            counted; huge-page VMAs are not told apart",
        policy: LINUX_3_13,
    },
    Preset {
        name: "linux-3.13-altershift",
        description: "3.13 with Ivy Bridge's shift at 2, walk kept, counted only for debugging: the first step \
            of the ebizzy series of December 2013",
        policy: Policy { range: ivy_bridge(2, LargePageWalk::Walk), accounting: Accounting::Off, ..LINUX_3_4 },
    },
    Preset {
        name: "linux-3.14",
        description: "3.13 with Ivy Bridge's shift at 2, no walk, counted only for debugging: all of the \
            ebizzy series of December 2013",
        policy: LINUX_3_14,
    },
    Preset { name: "linux-4.13", description: "one ceiling of 33 pages; no PCID", policy: LINUX_4_13 },
    Preset {
        name: "linux-4.14",
        description: "six PCIDs in turn; idle loads the kernel's tables and writes both sets; its short-lived \
            lazy heuristics are not expressed",
        policy: LINUX_4_14,
    },
    Preset {
        name: "linux-4.15-pti",
        description: "4.14 with page-table isolation, user half by INVPCID",
        policy: Policy { isolation: Isolation::On, ..LINUX_4_14 },
    },
    Preset {
        name: "linux-4.20",
        description: "lazy CPUs keep the space and are skipped unless tables are freed; the set still cleared at \
            switches",
        policy: LINUX_4_20,
    },
    Preset {
        name: "linux-6.18",
        description: "the set is kept at switches and trimmed, when tables are freed and besides (here by generations, \
            there once a second); local flush while remote; global ASIDs of AMD are not expressed",
        policy: LINUX_6_18,
    },
    Preset {
        name: "netbsd-5.0",
        description: "each invalidation sent at once, alternate window for foreign tables; its one global \
            mailbox is not expressed",
        policy: NETBSD_5_0,
    },
    Preset {
        name: "netbsd-5.0-batched",
        description: "5.0 with the undated patch against it that gathers shootdowns: packets of six, tables freed \
            at destroy, foreign tables by temporary switch",
        policy: NETBSD_5_0_BATCHED,
    },
    Preset {
        name: "netbsd-10",
        description: "packets of 16; answers before flushing are not expressed",
        policy: Policy { batching: Batching::Packet(16), foreign: Foreign::DirectMap, ..NETBSD_5_0_BATCHED },
    },
    Preset {
        name: "freebsd-14",
        description: "no lazy mode, 4,096 pages or more flush everything; its whole PCID namespace is expressed as 15 \
            slots, answers before flushing are not",
        policy: Policy {
            tags: Tags::RoundRobin(15),
            lazy: Lazy::Off,
            range: ceiling(4096, Compare::AtLeast),
            local_flush: LocalFlush::WhileRemote,
            lazy_references: LazyReferences::ShotDown,
            ..LINUX_3_4
        },
    },
    Preset {
        name: "asterinas",
        description: "no PCID, 32 pages or more flush everything, idle keeps the space and is interrupted",
        policy: Policy { range: ceiling(32, Compare::AtLeast), lazy_references: LazyReferences::ShotDown, ..LINUX_3_4 },
    },
    Preset {
        name: "xnu",
        description: "every flush of a space is a full one, under PCIDs; its shared tags are expressed as 15 \
            slots, least recently used",
        policy: Policy {
            tags: Tags::LeastRecent(15),
            lazy: Lazy::Off,
            cpu_set: CpuSetUpkeep::Trimmed { every: 0 },
            local_flush: LocalFlush::WhileRemote,
            ..LINUX_3_4
        },
    },
];

impl Policy {
    /// The preset called `name`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        PRESETS.iter().find(|preset| preset.name == name).map(|preset| preset.policy)
    }
}

impl Default for Policy {
    fn default() -> Self {
        PRESETS[0].policy
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_policies_valid() {
        for (n, preset) in PRESETS.iter().enumerate() {
            assert!(PRESETS[..n].iter().all(|other| other.name != preset.name));
            assert!(preset.policy.slots() >= 1);
        }
        assert_eq!(Policy::preset("no such kernel"), None);
    }

    /// `pmap_invalidate_range` of FreeBSD tests `eva - sva >= PMAP_INVLPG_THRESHOLD`; Linux tests for more than 33.
    #[test]
    fn a_limit_is_compared_as_its_kernel_compares_it() {
        for (name, singly) in [("freebsd-14", 4095), ("asterinas", 31), ("linux-4.13", 33), ("linux-6.18", 33)] {
            let range = Policy::preset(name).unwrap().range;
            assert!(!range.is_everything(singly, u64::MAX) && range.is_everything(singly + 1, u64::MAX), "{name}");
        }
    }
}
