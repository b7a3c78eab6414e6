//! The words of the text form: a table for each choice, read in one direction and printed in the other.

use core::fmt;

/// A word, and what it stands for.
pub(crate) type Word<T> = (&'static str, T);

/// Takes a key and its value.
pub(crate) type Put<'p> = &'p mut dyn FnMut(&str, fmt::Arguments<'_>) -> fmt::Result;

/// What `text` stands for.
pub(crate) fn value_of<T: Copy>(words: &[Word<T>], text: &str) -> Option<T> {
    words.iter().find(|(word, _)| *word == text).map(|&(_, value)| value)
}

/// Puts `key` with the word of `value`, unless `base` is the same.
pub(crate) fn put_word<T: PartialEq>(put: Put<'_>, key: &str, words: &[Word<T>], value: T, base: T) -> fmt::Result {
    match words.iter().find(|(_, meant)| *meant == value) {
        Some((word, _)) if value != base => put(key, format_args!("{word}")),
        _ => Ok(()),
    }
}

/// The number that `text` is, if it lies from `least` to `most`.
pub(crate) fn number(text: &str, least: i64, most: i64) -> Option<i64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}
