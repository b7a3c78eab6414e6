//! The presets by name. With the feature `history` there are more: `history/presets.rs` has the list then.

#[cfg(feature = "history")]
pub use crate::history::presets::PRESETS;
use crate::kernels::TLBKIT;
#[cfg(not(feature = "history"))]
use crate::kernels::{ASTERINAS, FREEBSD_14, Preset};
use crate::policy::Policy;

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
