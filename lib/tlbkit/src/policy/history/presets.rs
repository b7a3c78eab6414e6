//! Published kernels that take something from this folder, and the list of all presets.

use super::ENABLED;
use super::choices::{Accounting, Batching, FamilyShift, History, KernelSet, LargePageWalk, LazyReferences};
use super::tables::{Foreign, Nested, SharedDirty, TableFree};
use crate::policy::{
    Acknowledgement, Broadcast, Compare, CpuSetUpkeep, Directories, Isolation, Lazy, LocalFlush, Policy, Preset,
    RangeRule, Reclaim, TLBKIT, Tags, Unaccessed, Unmapping, UserFlush,
};

const fn ceiling(pages: u32, compare: Compare) -> RangeRule {
    RangeRule::Ceiling { pages, compare }
}

const fn ivy_bridge(shift: i8, walk: LargePageWalk) -> RangeRule {
    RangeRule::FamilyShift(FamilyShift { shift, entries: 512, walk })
}

const PLAIN: History = History { table_free: TableFree::AtOnce, ..History::NONE };
/// Linux before PCIDs: one context, the CPU set cleared at each switch, lazy CPUs interrupted once, gathered ranges.
const LINUX_3_4: Policy = Policy {
    tags: Tags::Off,
    lazy: Lazy::InterruptOnce,
    lazy_references: LazyReferences::Counted,
    cpu_set: CpuSetUpkeep::Exact,
    range: ceiling(0, Compare::Above),
    isolation: Isolation::Off,
    user_flush: UserFlush::Invpcid,
    local_flush: LocalFlush::BeforeRemote,
    broadcast: Broadcast::Off,
    unmapping: Unmapping::Awaited,
    directories: Directories::Shared,
    acknowledgement: Acknowledgement::AfterFlush,
    unaccessed: Unaccessed::Flushed,
    reclaim: Reclaim::Awaited,
    history: PLAIN,
};
const LINUX_3_13: Policy = Policy {
    range: ivy_bridge(1, LargePageWalk::Walk),
    history: History { accounting: Accounting::On, ..PLAIN },
    ..LINUX_3_4
};
const LINUX_3_14: Policy = Policy { range: ivy_bridge(2, LargePageWalk::Skip), ..LINUX_3_4 };
/// By Linux 1cf35d47712d, of 3.15, a dirty page of shared memory is flushed under the lock of its page table. By
/// 99baac21e458, of 4.13, operations that overlap flush their ranges, and by 7a30df49f63a, of 5.2, everything. What is
/// older does not know of overlaps, and goes with 4.13 here.
const LINUX_3_15: History = History { shared_dirty: SharedDirty::UnderLock, ..PLAIN };
const LINUX_5_2: History = History { nested: Nested::Everything, ..LINUX_3_15 };
const LINUX_4_13: Policy = Policy { range: ceiling(33, Compare::Above), history: LINUX_3_15, ..LINUX_3_4 };
const LINUX_4_14: Policy = Policy {
    tags: Tags::RoundRobin(6),
    lazy: Lazy::Off,
    history: History { kernel_set: KernelSet::Written, ..LINUX_3_15 },
    ..LINUX_4_13
};
const LINUX_4_20: Policy = Policy { lazy: Lazy::SkipUnlessTablesFreed, history: LINUX_3_15, ..LINUX_4_14 };
const TRIMMED_WITH_TABLES: CpuSetUpkeep = CpuSetUpkeep::TrimmedWithTables { every: 1024 };
const LINUX_6_18: Policy = Policy {
    cpu_set: TRIMMED_WITH_TABLES,
    local_flush: LocalFlush::WhileRemote,
    broadcast: Broadcast::From { cpus: 3 },
    history: LINUX_5_2,
    ..LINUX_4_20
};
const NETBSD_5_0: Policy = Policy {
    lazy_references: LazyReferences::ShotDown,
    range: ceiling(32, Compare::Above),
    history: History { batching: Batching::None, foreign: Foreign::Window, ..PLAIN },
    ..LINUX_3_4
};
const NETBSD_5_0_BATCHED: Policy =
    Policy { local_flush: LocalFlush::WhileRemote, history: packets(6, Foreign::TemporarySwitch), ..NETBSD_5_0 };

const fn packets(pages: u8, foreign: Foreign) -> History {
    History { batching: Batching::Packet(pages), foreign, ..History::NONE }
}

/// All presets, oldest first within a family; without the feature `history` only our own.
pub const PRESETS: &[Preset] = if ENABLED { ALL } else { &[TLBKIT] };

const ALL: &[Preset] = &[
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
    Preset {
        name: "linux-4.13",
        description: "one ceiling of 33 pages; no PCID; dirty pages of shared memory flushed under their table's lock",
        policy: LINUX_4_13,
    },
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
            there once a second); local flush while remote; sweeps of one space that overlap flush all of it; INVLPGB \
            from the first flush that interrupts three CPUs, there from one of 32 such flushes",
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
        policy: Policy { history: packets(16, Foreign::DirectMap), ..NETBSD_5_0_BATCHED },
    },
    Preset {
        name: "freebsd-14",
        description: "no lazy mode, 4,096 pages or more flush everything; its whole PCID namespace is expressed as 15 \
            slots, answers before flushing are not",
        policy: Policy {
            tags: Tags::RoundRobin(15),
            lazy: Lazy::Off,
            lazy_references: LazyReferences::ShotDown,
            range: ceiling(4096, Compare::AtLeast),
            local_flush: LocalFlush::WhileRemote,
            history: PLAIN,
            ..LINUX_3_4
        },
    },
    Preset {
        name: "asterinas",
        description: "no PCID, 32 pages or more flush everything, idle keeps the space and is interrupted",
        policy: Policy { lazy_references: LazyReferences::ShotDown, range: ceiling(32, Compare::AtLeast), ..LINUX_3_4 },
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
    Preset {
        name: "early-ack",
        description: "our own default, and a CPU acknowledges a flush of base pages of the space that it runs before \
            it flushes, unless page tables are freed (Amit, 2019 and EuroSys 2020); a flush of everything is \
            acknowledged afterwards here, there before it",
        policy: Policy { acknowledgement: Acknowledgement::BeforeFlush, ..TLBKIT.policy },
    },
    Preset {
        name: "latr",
        description: "our own default, and munmap of private pages waits for nobody (LATR, 2018): frames and addresses \
            come back when each CPU has entered the kernel; its ring of requests is expressed as generations, so that \
            who is late flushes the whole space; MADV_DONTNEED waits, as its addresses stay",
        policy: Policy { unmapping: Unmapping::Retired, ..TLBKIT.policy },
    },
    Preset {
        name: "private-levels",
        description: "our own default, and each CPU has page tables of its own above the last level (RadixVM, 2013; \
            numaPTE, 2024), so that a flush below tables that one CPU alone has used interrupts nobody; each thread \
            maps where no other does; of a table that several CPUs have used it is not known which",
        policy: Policy { directories: Directories::OfEachCpu, ..TLBKIT.policy },
    },
    Preset {
        name: "private-levels-latr",
        description: "private-levels and latr at once: what one CPU alone has used is flushed there and comes back at \
            once, and munmap of what several have used waits for nobody",
        policy: Policy { directories: Directories::OfEachCpu, unmapping: Unmapping::Retired, ..TLBKIT.policy },
    },
    Preset {
        name: "luf",
        description: "our own default, and clean pages that could only be read are flushed when their frames are used \
            again (LUF, an RFC of 2025), on CPUs that have answered no other flush meanwhile; there a free page names \
            its CPUs, here all of a batch do",
        policy: Policy { reclaim: Reclaim::AtReuse, ..TLBKIT.policy },
    },
    Preset {
        name: "abis",
        description: "our own default, and what no CPU has accessed is taken out without a flush (ABIS, 2017), so \
            pages that a fault maps around its own are mapped without the accessed bit; that entries say which CPU \
            alone has loaded them, the other half of it, is not expressed",
        policy: Policy { unaccessed: Unaccessed::Spared, ..TLBKIT.policy },
    },
];

/// Their names, so that a build without the feature can say that it leaves them out, and not that there are none.
pub(crate) const PUBLISHED: &[&str] = &[
    "linux-3.4",
    "linux-3.13",
    "linux-3.13-altershift",
    "linux-3.14",
    "linux-4.13",
    "linux-4.14",
    "linux-4.15-pti",
    "linux-4.20",
    "linux-6.18",
    "netbsd-5.0",
    "netbsd-5.0-batched",
    "netbsd-10",
    "freebsd-14",
    "asterinas",
    "xnu",
    "early-ack",
    "latr",
    "private-levels",
    "private-levels-latr",
    "luf",
    "abis",
];

#[cfg(all(test, feature = "history", not(loom)))]
mod tests {
    use super::*;

    /// `pmap_invalidate_range` of FreeBSD tests `eva - sva >= PMAP_INVLPG_THRESHOLD`; Linux tests for more than 33.
    #[test]
    fn a_limit_is_compared_as_its_kernel_compares_it() {
        for (name, singly) in [("freebsd-14", 4095), ("asterinas", 31), ("linux-4.13", 33), ("linux-6.18", 33)] {
            let range = Policy::preset(name).unwrap().range;
            assert!(!range.is_everything(singly, u64::MAX) && range.is_everything(singly + 1, u64::MAX), "{name}");
        }
    }
}
