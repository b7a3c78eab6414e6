//! The text form of what only older kernels chose.

use core::fmt;

use super::choices::{Accounting, Batching, FamilyShift, History, KernelSet, LargePageWalk};
use super::state::MAX_PAGES;
use super::tables::{Foreign, Nested, SharedDirty, TableFree};
use crate::policy::words::{Put, Word, number, put_word, value_of};
use crate::policy::{Policy, RangeRule};

const KERNEL_SET: &[Word<KernelSet>] = &[("written", KernelSet::Written), ("unwritten", KernelSet::Unwritten)];
const WALK: &[Word<LargePageWalk>] = &[("on", LargePageWalk::Walk), ("off", LargePageWalk::Skip)];
const TABLES: &[Word<TableFree>] = &[("at-once", TableFree::AtOnce), ("at-destroy", TableFree::AtDestroyUnlessLow)];
const FOREIGN: &[Word<Foreign>] =
    &[("window", Foreign::Window), ("switch", Foreign::TemporarySwitch), ("direct", Foreign::DirectMap)];
const STATS: &[Word<Accounting>] = &[("on", Accounting::On), ("off", Accounting::Off)];
const NESTED: &[Word<Nested>] = &[("range", Nested::Range), ("everything", Nested::Everything)];
const SHARED_DIRTY: &[Word<SharedDirty>] = &[("at-end", SharedDirty::AtEnd), ("under-lock", SharedDirty::UnderLock)];

/// Sets a key of older kernels; `None` if there is no such value.
pub(crate) fn set(policy: &mut Policy, key: &str, value: &str) -> Option<()> {
    let history = &mut policy.history;
    match key {
        "kernel_set" => history.kernel_set = value_of(KERNEL_SET, value)?,
        "page_table_walk" => {
            let walk = value_of(WALK, value)?;
            policy.range = RangeRule::FamilyShift(FamilyShift { walk, ..rule_of(&policy.range) });
        }
        "shift" => {
            let shift = number(value, -1, 9)? as i8;
            policy.range = RangeRule::FamilyShift(FamilyShift { shift, ..rule_of(&policy.range) });
        }
        "entries" => {
            let entries = number(value, 0, i64::from(u16::MAX))? as u16;
            policy.range = RangeRule::FamilyShift(FamilyShift { entries, ..rule_of(&policy.range) });
        }
        "batching" => {
            history.batching = match value {
                "none" => Batching::None,
                "range" => Batching::Range,
                _ => Batching::Packet(number(value, 1, MAX_PAGES as i64)? as u8),
            }
        }
        "tables" => history.table_free = value_of(TABLES, value)?,
        "foreign" => history.foreign = value_of(FOREIGN, value)?,
        "stats" => history.accounting = value_of(STATS, value)?,
        "nested" => history.nested = value_of(NESTED, value)?,
        "shared_dirty" => history.shared_dirty = value_of(SHARED_DIRTY, value)?,
        _ => return None,
    }
    Some(())
}

/// The rule that a part of the 3.x rule is set in: Ivy Bridge's of Linux 3.13, without its walk, if there was none.
const fn rule_of(range: &RangeRule) -> FamilyShift {
    match *range {
        RangeRule::FamilyShift(rule) => rule,
        RangeRule::Ceiling { .. } => FamilyShift { shift: 1, entries: 512, walk: LargePageWalk::Skip },
    }
}

/// Puts the settings that make `rule` of `base`; one at least where `base` is another kind of rule.
pub(crate) fn rule_changes(rule: &FamilyShift, base: &RangeRule, put: Put<'_>) -> fmt::Result {
    let before = rule_of(base);
    if rule.shift != before.shift || matches!(base, RangeRule::Ceiling { .. }) {
        put("shift", format_args!("{}", rule.shift))?;
    }
    if rule.entries != before.entries {
        put("entries", format_args!("{}", rule.entries))?;
    }
    put_word(put, "page_table_walk", WALK, rule.walk, before.walk)
}

/// Puts the settings that make `history` of `base`.
pub(crate) fn changes(history: &History, base: &History, put: Put<'_>) -> fmt::Result {
    put_word(put, "kernel_set", KERNEL_SET, history.kernel_set, base.kernel_set)?;
    if history.batching != base.batching {
        match history.batching {
            Batching::None => put("batching", format_args!("none")),
            Batching::Packet(pages) => put("batching", format_args!("{pages}")),
            Batching::Range => put("batching", format_args!("range")),
        }?;
    }
    put_word(put, "tables", TABLES, history.table_free, base.table_free)?;
    put_word(put, "foreign", FOREIGN, history.foreign, base.foreign)?;
    put_word(put, "stats", STATS, history.accounting, base.accounting)?;
    put_word(put, "nested", NESTED, history.nested, base.nested)?;
    put_word(put, "shared_dirty", SHARED_DIRTY, history.shared_dirty, base.shared_dirty)
}
