//! The kernel's own settings that can be changed while it runs, and put back.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A setting of the running kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knob {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Where it stands, from the root of the file system.
    pub path: &'static str,
    /// Words that it takes; none if it takes a number.
    words: &'static [&'static str],
    /// The largest number that it takes here.
    largest: u32,
}

/// Linux's own settings for huge pages.
const THP_WORDS: &[&str] = &["always", "madvise", "never"];
const DEFRAG_WORDS: &[&str] = &["always", "defer", "defer+madvise", "madvise", "never"];

/// Every setting that can be tried.
pub const KNOBS: [Knob; 4] = [
    Knob::THP,
    Knob { name: "thp-defrag", path: "sys/kernel/mm/transparent_hugepage/defrag", words: DEFRAG_WORDS, largest: 0 },
    Knob::CEILING,
    Knob { name: "numa-balancing", path: "proc/sys/kernel/numa_balancing", words: &[], largest: 1 },
];

impl Knob {
    /// When programs get huge pages.
    pub const THP: Self =
        Self { name: "thp", path: "sys/kernel/mm/transparent_hugepage/enabled", words: THP_WORDS, largest: 0 };
    /// Pages up to which a flush goes page by page. No range is longer than what one table maps and a page more.
    pub const CEILING: Self =
        Self { name: "ceiling", path: "sys/kernel/debug/x86/tlb_single_page_flush_ceiling", words: &[], largest: 513 };

    /// The file below `root`.
    #[must_use]
    pub fn file(&self, root: &Path) -> PathBuf {
        root.join(self.path)
    }

    /// `value` as the kernel says it: a number without sign and zeros in front. What it must be, if it is not that.
    pub(super) fn canonical(&self, value: &str) -> std::result::Result<String, String> {
        match self.words {
            [] => match value.parse::<u32>() {
                Ok(number) if number <= self.largest => Ok(number.to_string()),
                _ => Err(format!("must be a number from 0 to {}", self.largest)),
            },
            words if words.contains(&value) => Ok(value.to_owned()),
            words => Err(format!("must be one of {}", words.join(", "))),
        }
    }
}

/// What the setting in `file` is now: the word in brackets, if there are brackets.
pub(super) fn value(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file).map_err(Error::knob(file, "read"))?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    Ok(chosen.unwrap_or(text.trim()).to_owned())
}

/// Sets it, and looks whether the kernel took it. One that made something else of it is told what it said before.
pub(super) fn set(file: &Path, wanted: &str) -> Result<()> {
    let before = value(file)?;
    write(file, wanted)?;
    let taken = value(file)?;
    if taken == wanted {
        return Ok(());
    }
    write(file, &before)?;
    Err(Error::NotTaken { path: file.to_owned(), wanted: wanted.to_owned(), taken })
}

fn write(file: &Path, text: &str) -> Result<()> {
    // Not created: what is no setting of this kernel must not become a file.
    let opened = fs::OpenOptions::new().write(true).truncate(true).open(file);
    let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(Error::knob(file, "written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_value() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("enabled");
        fs::write(&file, "always [madvise] never\n").unwrap();
        assert_eq!(value(&file).unwrap(), "madvise");
        set(&file, "never").unwrap();
        assert_eq!(value(&file).unwrap(), "never");
    }

    #[test]
    fn what_this_kernel_has_not_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("enabled");
        let error = set(&file, "never").unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot be ", file.display())) && !file.exists(), "{error}");
    }

    #[test]
    fn what_the_kernel_makes_something_else_of_is_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ceiling");
        fs::write(&file, "33\n").unwrap();
        // As a kernel that reads a number, this file gives back less than was written.
        let error = set(&file, "7 ").unwrap_err().to_string();
        assert!(error.ends_with("is 7 after 7  was written"), "{error}");
        assert_eq!(value(&file).unwrap(), "33");
    }

    #[test]
    fn values_are_checked_before_anything_is_run() {
        let [thp, _, ceiling, numa] = &KNOBS;
        let taken = [thp.canonical("always"), ceiling.canonical("513"), numa.canonical("01"), ceiling.canonical("+9")];
        assert_eq!(taken.map(std::result::Result::unwrap), ["always", "513", "1", "9"]);
        assert_eq!(thp.canonical("on").unwrap_err(), "must be one of always, madvise, never");
        assert_eq!(ceiling.canonical("514").unwrap_err(), "must be a number from 0 to 513");
        assert!(ceiling.canonical("-1").is_err() && numa.canonical("2").is_err());
    }
}
