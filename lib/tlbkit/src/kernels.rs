//! Kernels as points in the space of policies: our own, and those published ones that take nothing from `history`.
//! What a preset cannot express is said in its description.

use crate::history::choices::History;
use crate::policy::{
    Compare, CpuSetUpkeep, Foreign, Isolation, Lazy, LocalFlush, Policy, RangeRule, TableFree, Tags, UserFlush,
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

pub(crate) const fn ceiling(pages: u32, compare: Compare) -> RangeRule {
    RangeRule::Ceiling { pages, compare }
}

/// One context, the set cleared at each switch, lazy CPUs interrupted once, every flush of a space a full one.
pub(crate) const PLAIN: Policy = Policy {
    tags: Tags::Off,
    lazy: Lazy::InterruptOnce,
    cpu_set: CpuSetUpkeep::Exact,
    range: ceiling(0, Compare::Above),
    table_free: TableFree::AtOnce,
    foreign: Foreign::DirectMap,
    isolation: Isolation::Off,
    user_flush: UserFlush::Invpcid,
    local_flush: LocalFlush::BeforeRemote,
    history: History::NONE,
};

pub(crate) const TLBKIT: Preset = Preset {
    name: "tlbkit",
    description: "our own default: six slots least recently used, lazy references shot down, set trimmed, \
        local flush while remote",
    policy: Policy {
        tags: Tags::LeastRecent(6),
        lazy: Lazy::SkipUnlessTablesFreed,
        cpu_set: CpuSetUpkeep::Trimmed { every: 1024 },
        range: ceiling(33, Compare::Above),
        table_free: TableFree::AtDestroyUnlessLow,
        local_flush: LocalFlush::WhileRemote,
        ..PLAIN
    },
};

pub(crate) const FREEBSD_14: Preset = Preset {
    name: "freebsd-14",
    description: "no lazy mode, 4,096 pages or more flush everything; its whole PCID namespace is expressed as 15 \
        slots, answers before flushing are not",
    policy: Policy {
        tags: Tags::RoundRobin(15),
        lazy: Lazy::Off,
        range: ceiling(4096, Compare::AtLeast),
        local_flush: LocalFlush::WhileRemote,
        ..PLAIN
    },
};

pub(crate) const ASTERINAS: Preset = Preset {
    name: "asterinas",
    description: "no PCID, 32 pages or more flush everything, idle keeps the space and is interrupted",
    policy: Policy { range: ceiling(32, Compare::AtLeast), ..PLAIN },
};
