//! `verify/coverage.toml`: functions with lines that no program of the checker reaches, each with the test that does,
//! or with the reason.

use super::reached::File;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

const FILE: &str = "verify/coverage.toml";

/// The file.
pub(super) struct Known {
    all: Vec<Unreached>,
}

struct Unreached {
    file: String,
    functions: Vec<String>,
    why: Why,
}

/// Why no program is needed.
pub(super) enum Why {
    /// This test reaches the lines: a file, a colon, its name.
    Test(String),
    /// Nothing reaches them, or nothing that could fail.
    Reason,
}

impl Known {
    /// Reads it.
    ///
    /// # Errors
    /// If an entry is not whole, or is about what is not there.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(FILE)).with_context(|| FILE.to_owned())?;
        let known = Self::parse(&text).with_context(|| FILE.to_owned())?;
        for Unreached { file, functions, why } in &known.all {
            functions.iter().try_for_each(|function| names(root, file, function))?;
            if let Why::Test(test) = why {
                let (file, test) = test.split_once(": ").with_context(|| format!("{FILE}: `{test}` names no file"))?;
                names(root, file, test)?;
            }
        }
        Ok(known)
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let file: toml::Table = text.parse()?;
        let entries = file.get("unreached").and_then(toml::Value::as_array).into_iter().flatten();
        let all = entries.map(|entry| {
            let string = |key| entry.get(key).and_then(toml::Value::as_str).filter(|text| !text.is_empty());
            let functions = entry.get("functions").and_then(toml::Value::as_array).into_iter().flatten();
            let why = match (string("test"), string("reason")) {
                (Some(test), None) => Why::Test(test.to_owned()),
                (None, Some(_)) => Why::Reason,
                _ => bail!("either `test` or `reason` in `{entry}`"),
            };
            let functions: Vec<String> = functions.filter_map(toml::Value::as_str).map(str::to_owned).collect();
            let file = string("file").with_context(|| format!("no `file` in `{entry}`"))?.to_owned();
            if functions.is_empty() {
                bail!("no `functions` in `{entry}`")
            }
            Ok(Unreached { file, functions, why })
        });
        Ok(Self { all: all.collect::<Result<_>>()? })
    }

    /// Why lines of this function are not reached, if somebody says.
    pub(super) fn why(&self, file: &str, function: &str) -> Option<&Why> {
        self.all.iter().find(|it| it.file == file && it.functions.iter().any(|name| name == function)).map(|it| &it.why)
    }

    /// Lines that are not reached and of which nobody says why, and entries about what is reached.
    pub(super) fn complaints(&self, files: &[File]) -> Vec<String> {
        let mut found = Vec::new();
        for file in files {
            for missed in file.missed.iter().filter(|missed| self.why(&file.path, &missed.function).is_none()) {
                let (path, function, lines) = (&file.path, &missed.function, &missed.lines);
                found.push(format!("{path}: `{function}` is not reached in {lines:?}"));
            }
        }
        for Unreached { file, functions, .. } in &self.all {
            let missed = files.iter().filter(|it| it.path == *file).flat_map(|it| &it.missed);
            let missed: Vec<&str> = missed.map(|missed| missed.function.as_str()).collect();
            for function in functions.iter().filter(|function| !missed.contains(&function.as_str())) {
                found.push(format!("{FILE}: all of `{function}` of {file} is reached"));
            }
        }
        found
    }
}

/// An error if the file has no function of this name.
fn names(root: &Path, file: &str, function: &str) -> Result<()> {
    let text = fs::read_to_string(root.join(file)).with_context(|| format!("{FILE}: {file}"))?;
    let is_there = ["(", "<"].iter().any(|after| text.contains(&format!("fn {function}{after}")));
    if is_there { Ok(()) } else { bail!("{FILE}: {file} has no function `{function}`") }
}

#[cfg(test)]
mod tests {
    use super::super::reached::Missed;
    use super::*;

    const TEXT: &str = "[[unreached]]\nfile = \"a.rs\"\nfunctions = [\"one\"]\nreason = \"it is text\"\n";

    fn file(function: &str) -> File {
        let missed = vec![Missed { function: function.to_owned(), lines: vec![7] }];
        File { path: "a.rs".to_owned(), lines: (1, 2), regions: (1, 2), missed }
    }

    #[test]
    fn the_committed_list_is_about_what_is_there() -> Result<()> {
        assert!(!Known::read(&crate::setup::root()?)?.all.is_empty());
        Ok(())
    }

    #[test]
    fn each_line_needs_a_reason_and_each_reason_a_line() -> Result<()> {
        let known = Known::parse(TEXT)?;
        assert!(known.complaints(&[file("one")]).is_empty());
        let both = known.complaints(&[file("two")]);
        assert!(both.len() == 2 && both[0].contains("`two` is not reached in [7]") && both[1].contains("`one`"));
        Ok(())
    }

    #[test]
    fn an_entry_without_a_reason_or_with_two_is_refused() {
        assert!(Known::parse(&TEXT.replace("reason", "season")).is_err());
        assert!(Known::parse(&format!("{TEXT}test = \"b.rs: c\"\n")).is_err());
        assert!(Known::parse(&TEXT.replace("\"one\"", "")).is_err());
    }
}
