//! The text form of a policy, `PRESET[:KEY=VALUE[+KEY=VALUE...]]`, read and printed: `linux-6.18:ceiling=0+lazy=off`.
//!
//! A text is a preset, changed from left to right. What is printed names the nearest preset, and is read as the same
//! policy again. Nothing here allocates.

use core::fmt;

use super::history::ENABLED;
use super::history::choices::LazyReferences;
use super::history::presets::{PRESETS, PUBLISHED};
use super::history::text as history;
use super::words::{Put, Word, number, put_word, value_of};
use super::{
    Acknowledgement, Broadcast, Compare, CpuSetUpkeep, Directories, Isolation, Lazy, LocalFlush, MAX_CEILING_PAGES,
    Policy, RangeRule, Reclaim, Tags, Unaccessed, Unmapping, UserFlush,
};
use crate::cpu::asid::MAX_ASIDS;

/// One setting of the text form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// What stands before the `=`.
    pub name: &'static str,
    /// What may stand behind it.
    pub values: &'static str,
}

impl Key {
    /// True if one of the keys has no effect in a text that has both: the last one decides alone.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        let has = |names: &[&str], key: &Self| names.contains(&key.name);
        RIVALS.iter().any(|[one, two]| has(one, self) && has(two, other) || has(two, self) && has(one, other))
    }
}

/// Keys of which each side sets the whole of one field, by a kind of its own.
const RIVALS: &[[&[&str]; 2]] =
    &[[&["pcid"], &["lru"]], [&["ceiling", "compare"], &["page_table_walk", "shift", "entries"]]];

const fn key(name: &'static str, values: &'static str) -> Key {
    Key { name, values }
}

/// Every key, in the order in which help texts list them. Those that only a build with the feature `history` sets are
/// listed too, so that they can be refused by name.
pub const KEYS: &[Key] = &[
    key("pcid", "off, or 1 to 15 ASIDs in turn"),
    key("lru", "1 to 15 ASIDs, least recently used"),
    key("lazy", "off, once, skip"),
    key("set", "exact, kept, with-tables, or a power of two of generations between trims; with-tables/N for both"),
    key("kernel_set", "written, unwritten"),
    key("ceiling", "0 to 262144 pages; 0 for always everything"),
    key("compare", "above, at-least: whether as many pages as the ceiling still go one by one, or not"),
    key("page_table_walk", "on, off (Linux 3.x rule)"),
    key("shift", "-1 to 9 (Linux 3.x rule)"),
    key("entries", "0 to 65535 (Linux 3.x rule)"),
    key("batching", "none, range, or 1 to 16 pages a packet"),
    key("tables", "at-once, at-destroy"),
    key("foreign", "window, switch, direct"),
    key("pti", "on, off"),
    key("user_flush", "invpcid, cr3"),
    key("local", "before, while"),
    key("broadcast", "off, or 1 to 8192 CPUs that a flush interrupts before its space moves to INVLPGB"),
    key(
        "unmap",
        "awaited, retired: whether munmap waits for its flush, or leaves frames and addresses to a grace period",
    ),
    key("directories", "shared, own: whether each CPU has page tables of its own above the last level"),
    key("ack", "after, before: whether a CPU acknowledges a flush when it has flushed, or before, where it may"),
    key("unaccessed", "flushed, spared: whether an entry that no CPU has accessed is flushed when it is taken out"),
    key(
        "reclaim",
        "awaited, at-reuse: whether clean pages are flushed before they are free, or when they are used again",
    ),
    key("lazy_refs", "awaited, shot-down, counted"),
    key("stats", "on, off"),
    key("nested", "range, everything: what the end of a sweep flushes while another one of the space is under way"),
    key("shared_dirty", "at-end, under-lock"),
];

const LAZY: &[Word<Lazy>] = &[("off", Lazy::Off), ("once", Lazy::InterruptOnce), ("skip", Lazy::SkipUnlessTablesFreed)];
const UNMAPPING: &[Word<Unmapping>] = &[("awaited", Unmapping::Awaited), ("retired", Unmapping::Retired)];
const DIRECTORIES: &[Word<Directories>] = &[("shared", Directories::Shared), ("own", Directories::OfEachCpu)];
const ACKNOWLEDGEMENT: &[Word<Acknowledgement>] =
    &[("after", Acknowledgement::AfterFlush), ("before", Acknowledgement::BeforeFlush)];
const UNACCESSED: &[Word<Unaccessed>] = &[("flushed", Unaccessed::Flushed), ("spared", Unaccessed::Spared)];
const RECLAIM: &[Word<Reclaim>] = &[("awaited", Reclaim::Awaited), ("at-reuse", Reclaim::AtReuse)];
const LAZY_REFERENCES: &[Word<LazyReferences>] = &[
    ("awaited", LazyReferences::Awaited),
    ("shot-down", LazyReferences::ShotDown),
    ("counted", LazyReferences::Counted),
];
const COMPARE: &[Word<Compare>] = &[("above", Compare::Above), ("at-least", Compare::AtLeast)];
const ISOLATION: &[Word<Isolation>] = &[("on", Isolation::On), ("off", Isolation::Off)];
const USER_FLUSH: &[Word<UserFlush>] = &[("invpcid", UserFlush::Invpcid), ("cr3", UserFlush::DeferredCr3)];
const LOCAL: &[Word<LocalFlush>] = &[("before", LocalFlush::BeforeRemote), ("while", LocalFlush::WhileRemote)];

/// What is wrong with a text, in one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextError<'t> {
    /// There is no such preset.
    NoPreset(&'t str),
    /// A setting without `=`.
    NoPair(&'t str),
    /// There is no such key.
    NoKey(&'t str),
    /// A key has no such value.
    BadValue(&'static Key, &'t str),
    /// A comparison for a rule that has no ceiling.
    NoCeiling,
    /// A preset or a key of older kernels, and this build is without the feature `history`.
    NeedsHistory(&'t str),
}

impl fmt::Display for TextError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPreset(name) => {
                write!(f, "no policy {name}: there are ")?;
                list(f, PRESETS.iter().map(|preset| preset.name))
            }
            Self::NoPair(word) => write!(f, "{word} is no KEY=VALUE, such as lazy=off"),
            Self::NoKey(name) => {
                write!(f, "no setting {name}: there are ")?;
                list(f, KEYS.iter().map(|key| key.name))
            }
            Self::BadValue(key, value) => write!(f, "{}={value}: must be {}", key.name, key.values),
            Self::NoCeiling => f.write_str("compare: there is no ceiling to compare with; set it before"),
            Self::NeedsHistory(name) => {
                write!(f, "{name}: this build leaves out what older kernels did: build with `history`")
            }
        }
    }
}

impl core::error::Error for TextError<'_> {}

fn list(f: &mut fmt::Formatter<'_>, mut names: impl Iterator<Item = &'static str>) -> fmt::Result {
    f.write_str(names.next().unwrap_or_default())?;
    names.try_for_each(|name| write!(f, ", {name}"))
}

impl Policy {
    /// The preset called `name`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        PRESETS.iter().find(|preset| preset.name == name).map(|preset| preset.policy)
    }

    /// The policy that `text` names.
    ///
    /// # Errors
    /// What is wrong with the first word that is.
    pub fn parse(text: &str) -> Result<Self, TextError<'_>> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut policy = Self::preset(name).ok_or_else(|| no_preset(name))?;
        policy.change(settings)?;
        Ok(policy)
    }

    /// Sets what `settings`, `KEY=VALUE[+KEY=VALUE...]`, says, from left to right. Of a key that stands there twice, or
    /// of two that [contradict](Key::contradicts) each other, the last one rules: whoever has a person type them asks.
    ///
    /// # Errors
    /// What is wrong with the first setting that is; those before it are set.
    pub fn change<'t>(&mut self, settings: &'t str) -> Result<(), TextError<'t>> {
        settings.split('+').filter(|setting| !setting.is_empty()).try_for_each(|setting| {
            let (key, value) = setting.split_once('=').ok_or(TextError::NoPair(setting))?;
            self.set(key, value)
        })
    }

    /// Changes what `key` stands for to `value`.
    ///
    /// # Errors
    /// If there is no such key, or no such value of it; the policy is then as before.
    pub fn set<'t>(&mut self, key: &'t str, value: &'t str) -> Result<(), TextError<'t>> {
        let known = KEYS.iter().find(|known| known.name == key).ok_or(TextError::NoKey(key))?;
        let bad = TextError::BadValue(known, value);
        match key {
            "pcid" if value == "off" => self.tags = Tags::Off,
            "pcid" => self.tags = Tags::RoundRobin(number(value, 1, MAX_ASIDS as i64).ok_or(bad)? as u8),
            "lru" => self.tags = Tags::LeastRecent(number(value, 1, MAX_ASIDS as i64).ok_or(bad)? as u8),
            "lazy" => self.lazy = value_of(LAZY, value).ok_or(bad)?,
            "lazy_refs" if value == "counted" && !ENABLED => {
                return Err(TextError::NeedsHistory(value));
            }
            "unmap" => self.unmapping = value_of(UNMAPPING, value).ok_or(bad)?,
            "directories" => self.directories = value_of(DIRECTORIES, value).ok_or(bad)?,
            "ack" => self.acknowledgement = value_of(ACKNOWLEDGEMENT, value).ok_or(bad)?,
            "unaccessed" => self.unaccessed = value_of(UNACCESSED, value).ok_or(bad)?,
            "reclaim" => self.reclaim = value_of(RECLAIM, value).ok_or(bad)?,
            "lazy_refs" => self.lazy_references = value_of(LAZY_REFERENCES, value).ok_or(bad)?,
            "set" => self.cpu_set = cpu_set(value).ok_or(bad)?,
            "ceiling" => {
                let pages = number(value, 0, MAX_CEILING_PAGES as i64).ok_or(bad)? as u32;
                self.range = RangeRule::Ceiling { pages, compare: compared(self.range) };
            }
            "compare" => {
                let RangeRule::Ceiling { pages, .. } = self.range else { return Err(TextError::NoCeiling) };
                self.range = RangeRule::Ceiling { pages, compare: value_of(COMPARE, value).ok_or(bad)? };
            }
            "pti" => self.isolation = value_of(ISOLATION, value).ok_or(bad)?,
            "user_flush" => self.user_flush = value_of(USER_FLUSH, value).ok_or(bad)?,
            "local" => self.local_flush = value_of(LOCAL, value).ok_or(bad)?,
            "broadcast" if value == "off" => self.broadcast = Broadcast::Off,
            "broadcast" => self.broadcast = Broadcast::From { cpus: number(value, 1, 8192).ok_or(bad)? as u32 },
            _ if !ENABLED => return Err(TextError::NeedsHistory(key)),
            _ => history::set(self, key, value).ok_or(bad)?,
        }
        Ok(())
    }

    /// Calls `put` with each setting, in an order in which they can be set, that makes this policy of `base`.
    fn changes(&self, base: &Self, put: Put<'_>) -> fmt::Result {
        if self.tags != base.tags {
            match self.tags {
                Tags::Off => put("pcid", format_args!("off")),
                Tags::RoundRobin(slots) => put("pcid", format_args!("{slots}")),
                Tags::LeastRecent(slots) => put("lru", format_args!("{slots}")),
            }?;
        }
        put_word(put, "lazy", LAZY, self.lazy, base.lazy)?;
        if self.cpu_set != base.cpu_set {
            match self.cpu_set {
                CpuSetUpkeep::Exact => put("set", format_args!("exact")),
                CpuSetUpkeep::Trimmed { every: 0 } => put("set", format_args!("kept")),
                CpuSetUpkeep::Trimmed { every } => put("set", format_args!("{every}")),
                CpuSetUpkeep::TrimmedWithTables { every: 0 } => put("set", format_args!("with-tables")),
                CpuSetUpkeep::TrimmedWithTables { every } => put("set", format_args!("with-tables/{every}")),
            }?;
        }
        match self.range {
            rule if rule == base.range => {}
            RangeRule::Ceiling { pages, compare } => {
                put("ceiling", format_args!("{pages}"))?;
                put_word(put, "compare", COMPARE, compare, compared(base.range))?;
            }
            RangeRule::FamilyShift(rule) if ENABLED => history::rule_changes(&rule, &base.range, put)?,
            RangeRule::FamilyShift(_) => {}
        }
        put_word(put, "pti", ISOLATION, self.isolation, base.isolation)?;
        put_word(put, "user_flush", USER_FLUSH, self.user_flush, base.user_flush)?;
        put_word(put, "local", LOCAL, self.local_flush, base.local_flush)?;
        if self.broadcast != base.broadcast {
            match self.broadcast {
                Broadcast::Off => put("broadcast", format_args!("off")),
                Broadcast::From { cpus } => put("broadcast", format_args!("{cpus}")),
            }?;
        }
        put_word(put, "unmap", UNMAPPING, self.unmapping, base.unmapping)?;
        put_word(put, "directories", DIRECTORIES, self.directories, base.directories)?;
        put_word(put, "ack", ACKNOWLEDGEMENT, self.acknowledgement, base.acknowledgement)?;
        put_word(put, "unaccessed", UNACCESSED, self.unaccessed, base.unaccessed)?;
        put_word(put, "reclaim", RECLAIM, self.reclaim, base.reclaim)?;
        put_word(put, "lazy_refs", LAZY_REFERENCES, self.lazy_references, base.lazy_references)?;
        if ENABLED { history::changes(&self.history, &base.history, put) } else { Ok(()) }
    }
}

/// The text form.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let distance = |base: &Self| {
            let mut count = 0;
            let counted = self.changes(base, &mut |_, _| {
                count += 1;
                Ok(())
            });
            counted.map_or(usize::MAX, |()| count)
        };
        let Some(nearest) = PRESETS.iter().min_by_key(|preset| distance(&preset.policy)) else { return Ok(()) };
        f.write_str(nearest.name)?;
        let mut separator = ':';
        self.changes(&nearest.policy, &mut |key, value| {
            write!(f, "{separator}{key}={value}")?;
            separator = '+';
            Ok(())
        })
    }
}

fn no_preset(name: &str) -> TextError<'_> {
    if PUBLISHED.contains(&name) { TextError::NeedsHistory(name) } else { TextError::NoPreset(name) }
}

/// How a ceiling set in place of `rule` is compared: as the preset does, for a kernel with another limit is still that
/// kernel.
const fn compared(rule: RangeRule) -> Compare {
    match rule {
        RangeRule::Ceiling { compare, .. } => compare,
        RangeRule::FamilyShift(_) => Compare::Above,
    }
}

fn cpu_set(value: &str) -> Option<CpuSetUpkeep> {
    let every = |value| number(value, 1, 1 << 31).map(|every| every as u32).filter(|every| every.is_power_of_two());
    Some(match value {
        "exact" => CpuSetUpkeep::Exact,
        "kept" => CpuSetUpkeep::Trimmed { every: 0 },
        "with-tables" => CpuSetUpkeep::TrimmedWithTables { every: 0 },
        _ => match value.strip_prefix("with-tables/") {
            Some(value) => CpuSetUpkeep::TrimmedWithTables { every: every(value)? },
            None => CpuSetUpkeep::Trimmed { every: every(value)? },
        },
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_policies_valid() {
        for (n, preset) in PRESETS.iter().enumerate() {
            assert!(PRESETS[..n].iter().all(|other| other.name != preset.name));
            assert!(preset.policy.asids() >= 1);
        }
        assert_eq!(Policy::preset("no such kernel"), None);
        assert_eq!(Policy::preset("tlbkit"), Some(Policy::default()));
    }

    #[cfg(feature = "history")]
    #[test]
    fn the_published_names_are_those_of_the_presets() {
        assert!(PRESETS[1..].iter().map(|preset| preset.name).eq(PUBLISHED.iter().copied()));
    }

    #[cfg(not(feature = "history"))]
    #[test]
    fn what_is_left_out_is_refused_by_name() {
        assert_eq!(Policy::parse("linux-6.18"), Err(TextError::NeedsHistory("linux-6.18")));
        assert_eq!(Policy::parse("tlbkit:stats=on"), Err(TextError::NeedsHistory("stats")));
        assert_eq!(Policy::parse("tlbkit:lazy_refs=counted"), Err(TextError::NeedsHistory("counted")));
        assert_eq!(Policy::parse("linux-9"), Err(TextError::NoPreset("linux-9")));
        assert_eq!(Policy::parse("tlbkit:lru=3").map(|policy| policy.tags), Ok(Tags::LeastRecent(3)));
    }
}
