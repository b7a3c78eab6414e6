//! Kernels as points in the space of policies: our own here, published ones in `history/presets.rs`.

use crate::history::choices::{History, LazyReferences};
use crate::policy::{Compare, CpuSetUpkeep, Isolation, Lazy, LocalFlush, Policy, RangeRule, Tags, UserFlush};

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

pub(crate) const TLBKIT: Preset = Preset {
    name: "tlbkit",
    description: "our own default: six slots least recently used, the end of a space awaited, set trimmed, \
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
        history: History::NONE,
    },
};

/// The names of the others, so that a build without them says that it leaves them out, and not that there are none.
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
];

impl Policy {
    /// Our own default, as the preset `tlbkit` describes it: right on any CPU, since one without tags does without.
    pub const DEFAULT: Self = TLBKIT.policy;
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}
