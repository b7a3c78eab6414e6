//! `verify/mutants/survivors.toml`: how each crate is judged, and which changes no test can notice, each with its
//! reason.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FILE: &str = "verify/mutants/survivors.toml";

/// The file.
pub(super) struct Excuses {
    /// Of cargo-mutants, by which the changes are named.
    pub(super) version: String,
    pub(super) judges: Vec<Judge>,
    pub(super) classes: Vec<Class>,
    survivors: Vec<Survivor>,
}

/// How a crate is judged.
pub(super) struct Judge {
    pub(super) name: String,
    /// What `cargo test` is given besides.
    pub(super) tests: Vec<String>,
    pub(super) features: Vec<String>,
    /// Files in which nothing is changed, as patterns below the workspace's root.
    pub(super) without: Vec<String>,
    /// What a test may take.
    pub(super) timeout_s: i64,
}

/// Changes that are not made at all.
pub(super) struct Class {
    /// A regular expression on their names.
    pub(super) pattern: String,
}

/// A change, by its name without its place, that is no bug.
struct Survivor {
    krate: String,
    change: String,
    /// How many changes of this name survive.
    count: usize,
}

/// Which changes were made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// All: an excuse that nothing needed can go.
    All,
    /// Those of one shard.
    Part,
}

impl Excuses {
    /// Reads it.
    ///
    /// # Errors
    /// If something is missing, or an excuse is for what is not there.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(FILE)).with_context(|| FILE.to_owned())?;
        let all = Self::parse(&text).with_context(|| FILE.to_owned())?;
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
        let file: toml::Table = text.parse()?;
        let judges = tables(&file, "crate").map(|table| {
            let timeout_s = table.get("timeout_s").and_then(toml::Value::as_integer).context("`timeout_s`")?;
            Ok(Judge {
                name: string(table, "name")?,
                tests: list(table, "tests"),
                features: list(table, "features"),
                without: list(table, "without"),
                timeout_s,
            })
        });
        let classes = tables(&file, "class").map(|table| {
            string(table, "reason")?;
            Ok(Class { pattern: string(table, "pattern")? })
        });
        let survivors = tables(&file, "survivor").map(|table| {
            string(table, "reason")?;
            let count = table.get("count").and_then(toml::Value::as_integer).unwrap_or(1);
            Ok(Survivor { krate: string(table, "crate")?, change: string(table, "change")?, count: count.try_into()? })
        });
        Ok(Self {
            version: string(&file, "version")?,
            judges: judges.collect::<Result<_>>()?,
            classes: classes.collect::<Result<_>>()?,
            survivors: survivors.collect::<Result<_>>()?,
        })
    }

    /// How many changes of this name are excused.
    pub(super) fn count(&self, krate: &str, change: &str) -> usize {
        let of_it = self.survivors.iter().filter(|it| it.krate == krate && it.change == change);
        of_it.map(|it| it.count).sum()
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
            if there < *count {
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

fn tables<'t>(file: &'t toml::Table, name: &str) -> impl Iterator<Item = &'t toml::Table> {
    file.get(name).and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_table)
}

fn string(table: &toml::Table, key: &str) -> Result<String> {
    let value = table.get(key).and_then(toml::Value::as_str).filter(|text| !text.is_empty());
    value.map(str::to_owned).with_context(|| format!("no `{key}` in `{table}`"))
}

fn list(table: &toml::Table, key: &str) -> Vec<String> {
    let values = table.get(key).and_then(toml::Value::as_array).into_iter().flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
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
