//! A protocol without its history: no key and no preset of older kernels.

/// As `presets.rs`.
pub(crate) mod presets {
    use crate::kernels::{Preset, TLBKIT};

    /// All presets: without the feature `history`, our own.
    pub const PRESETS: &[Preset] = &[TLBKIT];
}

/// As `text.rs`.
pub(crate) mod text {
    use crate::history::choices::{FamilyShift, History};
    use crate::policy::{Policy, RangeRule};
    use crate::words::Put;
    use core::fmt;

    pub(crate) const fn set(_policy: &mut Policy, _key: &str, _value: &str) -> Option<()> {
        None
    }

    pub(crate) const fn rule_changes(rule: &FamilyShift, _base: &RangeRule, _put: Put<'_>) -> fmt::Result {
        match *rule {}
    }

    pub(crate) const fn changes(_history: &History, _base: &History, _put: Put<'_>) -> fmt::Result {
        Ok(())
    }
}
