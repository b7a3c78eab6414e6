//! A policy from its name: a preset, and fields set otherwise: `linux-6.18:ceiling=0+lazy=off`.

use anyhow::{Context, Result, bail};
use tlbkit::{
    Accounting, Batching, Compare, CpuSetUpkeep, FamilyShift, Foreign, Isolation, KernelSet, LargePageWalk, Lazy,
    LazyReferences, LocalFlush, MAX_CEILING_PAGES, PRESETS, Policy, RangeRule, TableFree, Tags, UserFlush,
};

/// Every key that a setting may have, with its values: what the error and the help print.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("pcid", "off, or 1 to 15 slots in turn"),
    ("lru", "1 to 15 slots, least recently used"),
    ("lazy", "off, once, skip"),
    ("set", "exact, kept, with-tables, or a power of two of generations between trims"),
    ("kernel_set", "written, unwritten"),
    ("ceiling", "0 to 262144 pages; 0 for always everything"),
    ("compare", "above, at-least: whether as many pages as the ceiling still go one by one, or not"),
    ("page_table_walk", "on, off (Linux 3.x rule)"),
    ("shift", "-1 to 9 (Linux 3.x rule)"),
    ("batching", "none, range, or 1 to 16 pages a packet"),
    ("tables", "at-once, at-destroy"),
    ("foreign", "window, switch, direct"),
    ("pti", "on, off"),
    ("user_flush", "invpcid, cr3"),
    ("local", "before, while"),
    ("lazy_refs", "counted, shot-down"),
    ("stats", "on, off"),
];

/// The policy that `text` names: `PRESET[:KEY=VALUE[+KEY=VALUE...]]`.
pub(crate) fn policy(text: &str) -> Result<Policy> {
    let (preset, settings) = text.split_once(':').unwrap_or((text, ""));
    let mut policy = by_name(preset)?;
    for setting in settings.split('+').filter(|setting| !setting.is_empty()) {
        let (key, value) =
            setting.split_once('=').with_context(|| format!("policy {text}: {setting} is no KEY=VALUE"))?;
        set(&mut policy, key, value).with_context(|| format!("policy {text}"))?;
    }
    Ok(policy)
}

/// The preset called `name`.
pub(crate) fn by_name(name: &str) -> Result<Policy> {
    let names = || PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
    Policy::preset(name).with_context(|| format!("no policy {name}: there are {}", names()))
}

/// Sets one field of `policy`.
pub(crate) fn set(policy: &mut Policy, key: &str, value: &str) -> Result<()> {
    match (key, value) {
        ("pcid", "off") => policy.tags = Tags::Off,
        ("pcid", _) => policy.tags = Tags::RoundRobin(number(key, value, 1, 15)? as u8),
        ("lru", _) => policy.tags = Tags::LeastRecent(number(key, value, 1, 15)? as u8),
        ("lazy", "off") => policy.lazy = Lazy::Off,
        ("lazy", "once") => policy.lazy = Lazy::InterruptOnce,
        ("lazy", "skip") => policy.lazy = Lazy::SkipUnlessTablesFreed,
        ("set", "exact") => policy.cpu_set = CpuSetUpkeep::Exact,
        ("set", "kept") => policy.cpu_set = CpuSetUpkeep::Trimmed { every: 0 },
        ("set", "with-tables") => policy.cpu_set = CpuSetUpkeep::TrimmedWithTables { every: 0 },
        ("set", _) => policy.cpu_set = CpuSetUpkeep::Trimmed { every: power_of_two(key, value)? },
        ("kernel_set", "written") => policy.history.kernel_set = KernelSet::Written,
        ("kernel_set", "unwritten") => policy.history.kernel_set = KernelSet::Unwritten,
        ("ceiling", _) => policy.range = ceiling(policy.range, number(key, value, 0, MAX_CEILING_PAGES)? as u32),
        ("compare", "above") => policy.range = compared(policy.range, Compare::Above)?,
        ("compare", "at-least") => policy.range = compared(policy.range, Compare::AtLeast)?,
        ("page_table_walk", "on") => policy.range = family(policy.range, None, Some(LargePageWalk::Walk)),
        ("page_table_walk", "off") => policy.range = family(policy.range, None, Some(LargePageWalk::Skip)),
        ("shift", "-1") => policy.range = family(policy.range, Some(-1), None),
        ("shift", _) => policy.range = family(policy.range, Some(number(key, value, 0, 9)? as i8), None),
        ("batching", "none") => policy.history.batching = Batching::None,
        ("batching", "range") => policy.history.batching = Batching::Range,
        ("batching", _) => policy.history.batching = Batching::Packet(number(key, value, 1, 16)? as u8),
        ("tables", "at-once") => policy.table_free = TableFree::AtOnce,
        ("tables", "at-destroy") => policy.table_free = TableFree::AtDestroyUnlessLow,
        ("foreign", "window") => policy.foreign = Foreign::Window,
        ("foreign", "switch") => policy.foreign = Foreign::TemporarySwitch,
        ("foreign", "direct") => policy.foreign = Foreign::DirectMap,
        ("pti", "on") => policy.isolation = Isolation::On,
        ("pti", "off") => policy.isolation = Isolation::Off,
        ("user_flush", "invpcid") => policy.user_flush = UserFlush::Invpcid,
        ("user_flush", "cr3") => policy.user_flush = UserFlush::DeferredCr3,
        ("local", "before") => policy.local_flush = LocalFlush::BeforeRemote,
        ("local", "while") => policy.local_flush = LocalFlush::WhileRemote,
        ("lazy_refs", "counted") => policy.history.lazy_references = LazyReferences::Counted,
        ("lazy_refs", "shot-down") => policy.history.lazy_references = LazyReferences::ShotDown,
        ("stats", "on") => policy.history.accounting = Accounting::On,
        ("stats", "off") => policy.history.accounting = Accounting::Off,
        _ => bail!(unknown(key, value)),
    }
    Ok(())
}

fn unknown(key: &str, value: &str) -> String {
    match KEYS.iter().find(|(known, _)| *known == key) {
        Some((_, values)) => format!("{key}={value}: must be {values}"),
        None => format!("no setting {key}: there are {}", names_of_keys()),
    }
}

fn names_of_keys() -> String {
    KEYS.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", ")
}

fn number(key: &str, value: &str, least: u64, most: u64) -> Result<u64> {
    match value.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => bail!(unknown(key, value)),
    }
}

fn power_of_two(key: &str, value: &str) -> Result<u32> {
    let number = number(key, value, 1, 1 << 31)? as u32;
    if !number.is_power_of_two() {
        bail!(unknown(key, value));
    }
    Ok(number)
}

/// The preset's comparison stays: a kernel with another limit is still that kernel.
fn ceiling(rule: RangeRule, pages: u32) -> RangeRule {
    match rule {
        RangeRule::Ceiling { compare, .. } => RangeRule::Ceiling { pages, compare },
        RangeRule::FamilyShift(_) => RangeRule::Ceiling { pages, compare: Compare::Above },
    }
}

fn compared(rule: RangeRule, compare: Compare) -> Result<RangeRule> {
    match rule {
        RangeRule::Ceiling { pages, .. } => Ok(RangeRule::Ceiling { pages, compare }),
        RangeRule::FamilyShift(_) => bail!("compare: there is no ceiling to compare with; set it before"),
    }
}

fn family(rule: RangeRule, shift: Option<i8>, walk: Option<LargePageWalk>) -> RangeRule {
    let (old_shift, entries, old_walk) = match rule {
        RangeRule::FamilyShift(FamilyShift { shift, entries, walk }) => (shift, entries, walk),
        RangeRule::Ceiling { .. } => (1, 512, LargePageWalk::Skip),
    };
    RangeRule::FamilyShift(FamilyShift { shift: shift.unwrap_or(old_shift), entries, walk: walk.unwrap_or(old_walk) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_with_settings_is_that_preset_changed() {
        let policy = policy("linux-6.18:ceiling=0+lazy=off").unwrap();
        assert_eq!(policy.lazy, Lazy::Off);
        assert_eq!(policy.range, RangeRule::Ceiling { pages: 0, compare: Compare::Above });
        assert_eq!(Policy { lazy: Policy::preset("linux-6.18").unwrap().lazy, ..policy }.tags, policy.tags);
    }

    #[test]
    fn a_ceiling_is_compared_as_the_preset_does_unless_said_otherwise() {
        for (text, pages, compare) in [
            ("asterinas:ceiling=16", 16, Compare::AtLeast),
            ("asterinas:ceiling=16+compare=above", 16, Compare::Above),
            ("linux-6.18:compare=at-least", 33, Compare::AtLeast),
            ("linux-3.13:ceiling=8", 8, Compare::Above),
        ] {
            assert_eq!(policy(text).unwrap().range, RangeRule::Ceiling { pages, compare }, "{text}");
        }
        let error = format!("{:#}", policy("linux-3.13:compare=above").unwrap_err());
        assert!(error.contains("there is no ceiling"), "{error}");
    }

    #[test]
    fn the_limit_that_is_printed_is_the_limit() {
        let printed = format!("0 to {MAX_CEILING_PAGES} pages");
        assert!(KEYS.iter().any(|(key, values)| *key == "ceiling" && values.starts_with(&printed)), "{printed}");
        assert!(policy(&format!("xnu:ceiling={MAX_CEILING_PAGES}")).is_ok());
        assert!(policy(&format!("xnu:ceiling={}", MAX_CEILING_PAGES + 1)).is_err());
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, part) in [
            ("linux-9", "no policy linux-9: there are tlbkit,"),
            ("xnu:colour=red", "no setting colour: there are pcid,"),
            ("xnu:pcid=16", "pcid=16: must be off, or 1 to 15 slots"),
            ("xnu:set=3", "set=3: must be exact"),
            ("xnu:pcid", "pcid is no KEY=VALUE"),
        ] {
            let error = format!("{:#}", policy(text).unwrap_err());
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn every_key_that_is_listed_is_known() {
        for (key, _) in KEYS {
            let error = set(&mut Policy::default(), key, "?").unwrap_err().to_string();
            assert!(error.contains("must be"), "{error}");
        }
    }
}
