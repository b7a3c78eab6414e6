//! `verify/coverage.toml`: functions with lines that no program of the checker reaches, each with the test that does,
//! or with the reason.

use super::reached::File;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::Path;

const FILE: &str = "verify/coverage.toml";

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    #[serde(default, rename = "unreached")]
    all: Vec<Unreached>,
}

#[derive(Deserialize)]
#[serde(try_from = "Entry")]
struct Unreached {
    file: String,
    functions: Vec<String>,
    why: Why,
}

/// An entry as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    functions: Vec<String>,
    test: Option<String>,
    reason: Option<String>,
}

/// Why no program is needed.
pub(super) enum Why {
    /// This test reaches the lines: a file, a colon, its name.
    Test(String),
    /// Nothing reaches them, or nothing that could fail.
    Reason,
}

impl TryFrom<Entry> for Unreached {
    type Error = String;

    fn try_from(entry: Entry) -> Result<Self, String> {
        let Entry { file, functions, test, reason } = entry;
        let why = match (test.as_deref(), reason.as_deref()) {
            (Some(""), _) | (_, Some("")) => return Err(format!("an empty `test` or `reason` about `{file}`")),
            (Some(test), None) => Why::Test(test.to_owned()),
            (None, Some(_)) => Why::Reason,
            _ => return Err(format!("either `test` or `reason` about `{file}`")),
        };
        if file.is_empty() || functions.is_empty() {
            return Err(format!("a `file` and its `functions`, got `{file}` and {functions:?}"));
        }
        Ok(Self { file, functions, why })
    }
}

impl Known {
    /// Reads it.
    ///
    /// # Errors
    /// If an entry is not whole, or is about what is not there.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(FILE)).context(FILE)?;
        let known = Self::parse(&text)?;
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
        toml::from_str(text).context(FILE)
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
    fn a_misspelt_key_and_a_value_of_another_type_are_refused_with_the_file() {
        for (right, wrong) in [
            ("[[unreached]]", "[[unreachd]]"),
            ("reason", "line = 7\nreason"),
            ("[\"one\"]", "[\"one\", 2]"),
            ("[\"one\"]", "\"one\""),
        ] {
            let error = Known::parse(&TEXT.replace(right, wrong)).map(drop).map_err(|error| format!("{error:#}"));
            assert!(error.is_err_and(|text| text.starts_with(FILE)), "{wrong}");
        }
    }

    #[test]
    fn an_entry_without_a_reason_or_with_two_is_refused() {
        assert!(Known::parse(&TEXT.replace("reason", "season")).is_err());
        assert!(Known::parse(&format!("{TEXT}test = \"b.rs: c\"\n")).is_err());
        assert!(Known::parse(&TEXT.replace("\"one\"", "")).is_err());
        assert!(Known::parse(&TEXT.replace("it is text", "")).is_err());
    }
}
