//! Kernels as points in the space of policies: our own, and those published ones that take nothing from `history`.
//! What a preset cannot express is said in its description.

use crate::history::choices::History;
#[cfg(feature = "history")]
pub use crate::history::presets::PRESETS;
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

/// The presets that there are without the feature `history`.
#[cfg(not(feature = "history"))]
pub const PRESETS: &[Preset] = &[TLBKIT, FREEBSD_14, ASTERINAS];

impl Policy {
    /// The preset called `name`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        PRESETS.iter().find(|preset| preset.name == name).map(|preset| preset.policy)
    }
}

impl Default for Policy {
    fn default() -> Self {
        TLBKIT.policy
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
        assert_eq!(Policy::preset("tlbkit"), Some(Policy::default()));
    }

    /// `pmap_invalidate_range` of FreeBSD tests `eva - sva >= PMAP_INVLPG_THRESHOLD`; Linux tests for more than 33.
    #[test]
    fn a_limit_is_compared_as_its_kernel_compares_it() {
        for (name, singly) in [("freebsd-14", 4095), ("asterinas", 31), ("tlbkit", 33)] {
            let range = Policy::preset(name).unwrap().range;
            assert!(!range.is_everything(singly, u64::MAX) && range.is_everything(singly + 1, u64::MAX), "{name}");
        }
    }
}
