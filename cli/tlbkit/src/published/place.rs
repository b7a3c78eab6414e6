//! A place in an experiment's file, for errors of one line: file, line, key, value, limit.

use std::fmt::Display;

use anyhow::{Error, anyhow};

/// A place in the file.
pub(super) struct FilePosition<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    pub(super) byte: usize,
}

impl FilePosition<'_> {
    /// The one line that a user sees.
    pub(super) fn error(&self, key: &str, value: impl Display, limit: impl Display) -> Error {
        anyhow!("{}:{}: {key} = {value}: {limit}", self.file, self.line())
    }

    pub(super) fn line(&self) -> usize {
        self.text[..self.byte.min(self.text.len())].matches('\n').count() + 1
    }

    /// The first line at or after this place that sets `key`: a block is found by its head, its fault is below it.
    pub(super) fn of_key(&self, key: &str) -> FilePosition<'_> {
        let mut byte = self.byte;
        for line in self.text[self.byte..].split_inclusive('\n') {
            if line.split('=').next().is_some_and(|left| left.trim() == key) {
                return FilePosition { byte, ..*self };
            }
            byte += line.len();
        }
        FilePosition { ..*self }
    }
}
