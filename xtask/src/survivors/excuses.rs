//! `verify/mutants/survivors.toml`: how each crate is judged, and which changes no test can notice, each with its
//! reason.

use anyhow::{Context, Result, bail};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

const FILE: &str = "verify/mutants/survivors.toml";

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Excuses {
    /// The version of cargo-mutants, as the names of the changes depend on it.
    #[serde(deserialize_with = "words")]
    pub(super) version: String,
    #[serde(default, rename = "crate")]
    pub(super) judges: Vec<Judge>,
    #[serde(default, rename = "class")]
    pub(super) classes: Vec<Class>,
    #[serde(default, rename = "survivor")]
    survivors: Vec<Survivor>,
}

/// How a crate is judged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Judge {
    #[serde(deserialize_with = "words")]
    pub(super) name: String,
    /// What `cargo test` is given besides.
    pub(super) tests: Vec<String>,
    #[serde(default)]
    pub(super) features: Vec<String>,
    /// Files in which nothing is changed, as patterns below the workspace's root.
    #[serde(default)]
    pub(super) without: Vec<String>,
    /// What a test may take.
    pub(super) timeout_s: u64,
}

/// Changes that are not made at all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    /// A regular expression on their names.
    #[serde(deserialize_with = "words")]
    pub(super) pattern: String,
    #[serde(rename = "reason", deserialize_with = "words")]
    _reason: String,
}

/// A change, by its name without its place, that is no bug.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    #[serde(rename = "crate", deserialize_with = "words")]
    krate: String,
    #[serde(deserialize_with = "words")]
    change: String,
    /// How many changes of this name survive.
    #[serde(default = "one")]
    count: NonZeroUsize,
    #[serde(rename = "reason", deserialize_with = "words")]
    _reason: String,
}

const fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

/// A text that says something.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(D::Error::custom("a text that says nothing")) } else { Ok(text) }
}

/// Which changes were made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// All: an excuse that nothing needed can go.
    All,
    /// Only the changes of one shard.
    Part,
}

impl Excuses {
    /// Reads it.
    ///
    /// # Errors
    /// If something is missing, or an excuse is for what is not there.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(FILE)).context(FILE)?;
        let all = Self::parse(&text)?;
        for Survivor { krate, change, .. } in &all.survivors {
            let (file, what) = change.split_once(": ").with_context(|| format!("{FILE}: `{change}` names no file"))?;
            let source = root.join("lib").join(krate).join(file);
            let source = fs::read_to_string(&source).with_context(|| format!("{FILE}: `{change}`"))?;
            let function = function(what);
            // A constant has no function.
            let is_name = function.chars().all(|c| c.is_alphanumeric() || c == '_');
            if is_name && !source.contains(&format!("fn {function}")) {
                bail!("{FILE}: `{change}`: {file} of {krate} has no function `{function}`");
            }
        }
        Ok(all)
    }

    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context(FILE)
    }

    /// How many changes of this name are excused.
    pub(super) fn count(&self, krate: &str, change: &str) -> usize {
        let of_it = self.survivors.iter().filter(|it| it.krate == krate && it.change == change);
        of_it.map(|it| it.count.get()).sum()
    }

    /// What is wrong with the survivors of a crate: some that are not excused, and, if all changes were made, excuses
    /// that nothing needs.
    pub(super) fn complaints(&self, krate: &str, survived: &BTreeMap<String, usize>, made: Made) -> Vec<String> {
        let mut found = Vec::new();
        for (change, &count) in survived {
            let excused = self.count(krate, change);
            if count > excused {
                found.push(format!("not noticed: {change} ({count} times, {excused} excused)"));
            }
        }
        for Survivor { change, count, .. } in self.survivors.iter().filter(|it| made == Made::All && it.krate == krate)
        {
            let there = survived.get(change).copied().unwrap_or(0);
            if there < count.get() {
                found.push(format!("excused, but noticed by now: {change} ({count} excused, {there} survived)"));
            }
        }
        found
    }
}

/// The name of a change without the line and the column, and with the path inside the crate.
pub(super) fn placeless(name: &str) -> String {
    let (file, rest) = name.split_once(".rs:").unwrap_or((name, ""));
    let what = rest.split_once(": ").map_or(rest, |(_, what)| what);
    let file = file.find("src/").map_or(file, |at| &file[at..]);
    format!("{file}.rs: {what}")
}

/// The function that the name of a change ends in, or begins with.
fn function(what: &str) -> &str {
    let whole = what.rsplit_once(" in ").map_or_else(
        || what.trim_start_matches("replace ").split(" with ").next().unwrap_or(what),
        |(_, function)| function,
    );
    let path = whole.split(" -> ").next().unwrap_or(whole);
    path.rsplit("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        version = "1"
        [[survivor]]
        crate = "a"
        change = "src/b.rs: replace + with * in g"
        count = 2
        reason = "both are the same"
    "#;

    #[test]
    fn the_committed_list_is_whole() -> Result<()> {
        let excuses = Excuses::read(&crate::setup::root()?)?;
        assert!(!excuses.judges.is_empty());
        Ok(())
    }

    #[test]
    fn each_survivor_needs_an_excuse_and_each_excuse_a_survivor() -> Result<()> {
        let excuses = Excuses::parse(TEXT)?;
        let survived = |count| BTreeMap::from([("src/b.rs: replace + with * in g".to_owned(), count)]);
        assert!(excuses.complaints("a", &survived(2), Made::All).is_empty());
        assert!(excuses.complaints("a", &survived(3), Made::Part)[0].starts_with("not noticed"));
        assert!(excuses.complaints("a", &survived(1), Made::All)[0].starts_with("excused, but"));
        assert!(excuses.complaints("a", &survived(1), Made::Part).is_empty(), "a part of the changes shows nothing");
        assert_eq!(excuses.complaints("c", &survived(1), Made::All).len(), 1);
        Ok(())
    }

    #[test]
    fn an_excuse_without_a_reason_is_refused() {
        assert!(Excuses::parse(&TEXT.replace("reason", "season")).is_err());
        assert!(Excuses::parse(&TEXT.replace("both are the same", "")).is_err());
    }

    #[test]
    fn a_misspelt_key_and_a_value_of_another_type_are_refused_with_the_file() {
        let judge = "[[crate]]\nname = \"a\"\ntests = []\nfeatures = []\nwithout = []\ntimeout_s = 1\n";
        let text = format!("{TEXT}\n{judge}");
        assert!(Excuses::parse(&text).is_ok());
        for (right, wrong) in [
            ("tests", "test"),
            ("features", "feature"),
            ("without", "witout"),
            ("[[crate]]", "[[crates]]"),
            ("count = 2", "count = \"2\""),
            ("count = 2", "counts = 2"),
            ("timeout_s = 1", "timeout_s = -1"),
        ] {
            let error = Excuses::parse(&text.replace(right, wrong)).map(drop).map_err(|error| format!("{error:#}"));
            assert!(error.is_err_and(|text| text.starts_with(FILE)), "{wrong}");
        }
    }

    #[test]
    fn names_lose_their_places_and_give_their_functions() {
        let name = "lib/a/src/b.rs:1:2: replace <impl H for X<'_, K>>::relax -> bool with true";
        let name = placeless(name);
        assert_eq!(name, "src/b.rs: replace <impl H for X<'_, K>>::relax -> bool with true");
        assert_eq!(function(name.split_once(": ").map_or("", |it| it.1)), "relax");
        assert_eq!(function("replace + with * in A::g"), "g");
    }
}
