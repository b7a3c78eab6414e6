//! Published kernels that take something from this folder, and the list of all presets.

use super::choices::{Accounting, Batching, FamilyShift, History, KernelSet, LargePageWalk, LazyReferences};
use crate::kernels::{ASTERINAS, FREEBSD_14, PLAIN, Preset, TLBKIT, ceiling};
use crate::policy::{Compare, CpuSetUpkeep, Foreign, Isolation, Lazy, LocalFlush, Policy, RangeRule, TableFree, Tags};

const fn ivy_bridge(shift: i8, walk: LargePageWalk) -> RangeRule {
    RangeRule::FamilyShift(FamilyShift { shift, entries: 512, walk })
}

const COUNTED: History = History { lazy_references: LazyReferences::Counted, ..History::NONE };
/// Linux before PCIDs: as `PLAIN`, with lazy references counted.
const LINUX_3_4: Policy = Policy { history: COUNTED, ..PLAIN };
const LINUX_3_13: Policy = Policy {
    range: ivy_bridge(1, LargePageWalk::Walk),
    history: History { accounting: Accounting::On, ..COUNTED },
    ..LINUX_3_4
};
const LINUX_3_14: Policy = Policy { range: ivy_bridge(2, LargePageWalk::Skip), ..LINUX_3_4 };
const LINUX_4_13: Policy = Policy { range: ceiling(33, Compare::Above), ..LINUX_3_4 };
const LINUX_4_14: Policy = Policy {
    tags: Tags::RoundRobin(6),
    lazy: Lazy::Off,
    history: History { kernel_set: KernelSet::Written, ..COUNTED },
    ..LINUX_4_13
};
const LINUX_4_20: Policy = Policy { lazy: Lazy::SkipUnlessTablesFreed, history: COUNTED, ..LINUX_4_14 };
const TRIMMED_WITH_TABLES: CpuSetUpkeep = CpuSetUpkeep::TrimmedWithTables { every: 1024 };
const LINUX_6_18: Policy = Policy { cpu_set: TRIMMED_WITH_TABLES, local_flush: LocalFlush::WhileRemote, ..LINUX_4_20 };
const NETBSD_5_0: Policy = Policy {
    range: ceiling(32, Compare::Above),
    foreign: Foreign::Window,
    history: History { batching: Batching::None, ..History::NONE },
    ..PLAIN
};
const NETBSD_5_0_BATCHED: Policy = Policy {
    table_free: TableFree::AtDestroyUnlessLow,
    foreign: Foreign::TemporarySwitch,
    local_flush: LocalFlush::WhileRemote,
    history: packets(6),
    ..NETBSD_5_0
};

const fn packets(pages: u8) -> History {
    History { batching: Batching::Packet(pages), ..History::NONE }
}

/// All presets, oldest first within a family.
pub const PRESETS: &[Preset] = &[
    TLBKIT,
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
        policy: Policy { range: ivy_bridge(2, LargePageWalk::Walk), ..LINUX_3_4 },
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
        policy: Policy { foreign: Foreign::DirectMap, history: packets(16), ..NETBSD_5_0_BATCHED },
    },
    FREEBSD_14,
    ASTERINAS,
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
