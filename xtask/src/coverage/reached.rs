//! What llvm-cov reports: for each file how many lines and regions were reached, and in which functions lines were not.

use crate::tidy::source::Source;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A source file. Pairs are what was reached, and all that there is.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct File {
    /// From the root of the repository.
    pub(super) path: String,
    pub(super) lines: (usize, usize),
    pub(super) regions: (usize, usize),
    /// Functions with lines that were not reached, in their order.
    pub(super) missed: Vec<Missed>,
}

/// Lines of one function that were not reached.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Missed {
    pub(super) function: String,
    /// From 1.
    pub(super) lines: Vec<usize>,
}

/// The files of the repository of which llvm-cov tells: lines in its form `lcov`, regions in its summary.
pub(super) fn files(lcov: &str, summary: &str, root: &Path) -> Result<Vec<File>> {
    let regions = regions(summary, root)?;
    let mut files = Vec::new();
    for (path, counts) in counts(lcov, root)? {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let source = Source::new(&path, &text);
        let lines = (counts.values().filter(|&&count| count > 0).count(), counts.len());
        let regions = *regions.get(&path).with_context(|| format!("the summary is silent of {path}"))?;
        files.push(File { lines, regions, missed: missed(&source, &counts), path });
    }
    Ok(files)
}

/// How often each line of each file was reached; a line may be named more than once.
fn counts(lcov: &str, root: &Path) -> Result<BTreeMap<String, BTreeMap<usize, u64>>> {
    let mut files: BTreeMap<String, BTreeMap<usize, u64>> = BTreeMap::new();
    let mut path = None;
    for line in lcov.lines() {
        if let Some(name) = line.strip_prefix("SF:") {
            path = below(name, root);
        } else if let (Some(numbers), Some(path)) = (line.strip_prefix("DA:"), &path) {
            let (line, count) = numbers.split_once(',').with_context(|| format!("`{line}` is no line of lcov"))?;
            let count: u64 = count.split(',').next().unwrap_or(count).parse().with_context(|| line.to_owned())?;
            let known = files.entry(path.clone()).or_default().entry(line.parse()?).or_default();
            *known = count.max(*known);
        }
    }
    Ok(files)
}

fn regions(summary: &str, root: &Path) -> Result<BTreeMap<String, (usize, usize)>> {
    let report: serde_json::Value = serde_json::from_str(summary)?;
    let mut regions = BTreeMap::new();
    for file in report["data"][0]["files"].as_array().context("no `files` in the summary")? {
        let number = |key| file["summary"]["regions"][key].as_u64().context("no regions in the summary");
        let Some(path) = file["filename"].as_str().and_then(|name| below(name, root)) else { continue };
        regions.insert(path, (number("covered")? as usize, number("count")? as usize));
    }
    Ok(regions)
}

/// The path below the root, if it is there.
fn below(name: &str, root: &Path) -> Option<String> {
    Path::new(name).strip_prefix(root).ok().map(|path| path.to_string_lossy().into_owned())
}

/// The innermost function around each line that was not reached.
fn missed(source: &Source, counts: &BTreeMap<usize, u64>) -> Vec<Missed> {
    let mut all: Vec<Missed> = Vec::new();
    for (&line, _) in counts.iter().filter(|&(_, &count)| count == 0) {
        let around = source.functions.iter().filter(|it| (it.lines.0..=it.lines.1).contains(&line));
        let function = around.max_by_key(|it| it.lines.0).map_or("no function", |it| it.name.as_str());
        match all.last_mut().filter(|last| last.function == function) {
            Some(last) => last.lines.push(line),
            None => all.push(Missed { function: function.to_owned(), lines: vec![line] }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_as_often_as_the_best_build_reached_it() -> Result<()> {
        let lcov = "SF:/r/a.rs\nDA:1,0\nDA:2,3\nend_of_record\nSF:/other/b.rs\nDA:1,1\nSF:/r/a.rs\nDA:1,2\nDA:2,0\n";
        let counts = counts(lcov, Path::new("/r"))?;
        assert_eq!(counts, BTreeMap::from([("a.rs".to_owned(), BTreeMap::from([(1, 2), (2, 3)]))]));
        Ok(())
    }

    #[test]
    fn a_line_belongs_to_the_innermost_function() {
        let text = "fn one() {\n    a();\n    fn two() {\n        b();\n    }\n}\n";
        let counts = BTreeMap::from([(1, 1), (2, 0), (4, 0), (6, 0)]);
        let missed = missed(&Source::new("a.rs", text), &counts);
        let told: Vec<_> = missed.iter().map(|it| (it.function.as_str(), it.lines.as_slice())).collect();
        assert_eq!(told, [("one", &[2][..]), ("two", &[4]), ("one", &[6])]);
    }

    #[test]
    fn regions_are_read_from_the_summary_and_nothing_else_is() {
        let summary = r#"{"data":[{"files":[{"filename":"/r/a.rs","summary":{"regions":{"count":5,"covered":4}}}]}]}"#;
        let read = regions(summary, Path::new("/r")).ok();
        assert_eq!(read, Some(BTreeMap::from([("a.rs".to_owned(), (4, 5))])));
        assert!(regions("{}", Path::new("/r")).is_err());
    }
}
