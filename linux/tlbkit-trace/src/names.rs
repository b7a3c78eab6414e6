//! Text, code addresses and call stacks as small numbers, so that events are plain values.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::num::NonZeroU32;

/// No trace needs more different texts or stacks; a hostile file does not get more.
const MAX_ENTRIES: usize = 1 << 18;
/// Longer texts are cut.
const MAX_NAME_BYTES: usize = 256;
/// Deeper stacks are cut: Linux's own default.
pub(crate) const MAX_FRAMES: usize = 127;

/// A text, by its number in [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(pub(crate) u32);

/// A call stack, by its number in [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackId(NonZeroU32);

impl StackId {
    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }

    fn from_index(index: usize) -> Option<Self> {
        u32::try_from(index + 1).ok().and_then(NonZeroU32::new).map(Self)
    }
}

/// A place in code: an address, or the function's name where it was known.
///
/// Kept in one word: the upper 17 bits of a real address are equal, and names sit in the hole between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(pub(crate) u64);

const HOLE: u64 = 0x7c0d_e000_0000_0000;

impl Code {
    /// The place at `address`.
    #[must_use]
    pub const fn address(address: u64) -> Self {
        Self(address)
    }

    /// The word that holds it: the address, if it is one.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The function `name`.
    #[must_use]
    pub const fn symbol(name: Name) -> Self {
        Self(HOLE | name.0 as u64)
    }

    /// The function's name, where it was known.
    #[must_use]
    pub const fn name(self) -> Option<Name> {
        if self.0 & !0xffff_ffff == HOLE { Some(Name(self.0 as u32)) } else { None }
    }
}

/// The texts and stacks of one trace.
#[derive(Debug)]
pub struct Names {
    texts: IndexSet<Box<str>, FxBuildHasher>,
    stacks: IndexSet<Box<[Code]>, FxBuildHasher>,
}

impl Default for Names {
    fn default() -> Self {
        let mut texts = IndexSet::with_hasher(FxBuildHasher);
        texts.insert("?".into());
        Self { texts, stacks: IndexSet::with_hasher(FxBuildHasher) }
    }
}

impl Names {
    /// What is not known.
    pub const UNKNOWN: Name = Name(0);

    /// The number of `text`; that of "?" when there are too many. What would command a terminal is kept escaped: names
    /// come out of a file, and go to one.
    pub fn add(&mut self, text: &str) -> Name {
        let text = cut(text);
        if let Some(index) = self.texts.get_index_of(text) {
            return Name(index as u32);
        }
        if text.contains(char::is_control) {
            return self.add(&text.escape_default().to_string());
        }
        if self.texts.len() == MAX_ENTRIES {
            return Self::UNKNOWN;
        }
        Name(self.texts.insert_full(text.into()).0 as u32)
    }

    /// As [`Names::add`], for bytes that end at the first zero and may be no text at all.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) -> Name {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        self.add(&String::from_utf8_lossy(&bytes[..end]))
    }

    /// The number of a stack, innermost frame first; none when there are too many.
    pub fn add_stack(&mut self, frames: &[Code]) -> Option<StackId> {
        let frames = &frames[..frames.len().min(MAX_FRAMES)];
        if frames.is_empty() {
            return None;
        }
        if let Some(index) = self.stacks.get_index_of(frames) {
            return StackId::from_index(index);
        }
        if self.stacks.len() == MAX_ENTRIES {
            return None;
        }
        StackId::from_index(self.stacks.insert_full(frames.into()).0)
    }

    /// The text.
    #[must_use]
    pub fn text(&self, name: Name) -> &str {
        self.texts.get_index(name.0 as usize).map_or("?", |text| text)
    }

    /// The frames, innermost first.
    #[must_use]
    pub fn stack(&self, id: StackId) -> &[Code] {
        self.stacks.get_index(id.index() as usize).map_or(&[], |frames| frames)
    }

    /// The function's name, or the address in hexadecimal.
    #[must_use]
    pub fn code(&self, code: Code) -> String {
        code.name().map_or_else(|| format!("{:#x}", code.0), |name| self.text(name).to_owned())
    }
}

/// The first bytes of a text, no character split.
fn cut(text: &str) -> &str {
    let is_end = |&end: &usize| text.is_char_boundary(end);
    let end = (0..=MAX_NAME_BYTES.min(text.len())).rev().find(is_end).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_equal_numbers() {
        let mut names = Names::default();
        let (a, b, again) = (names.add("gcc"), names.add("make"), names.add("gcc"));
        assert_eq!((a, names.text(b)), (again, "make"));
        assert_ne!(a, b);
    }

    #[test]
    fn bytes_end_at_the_first_zero() {
        let mut names = Names::default();
        let name = names.add_bytes(b"cc1\0rest");
        assert_eq!(names.text(name), "cc1");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut names = Names::default();
        let name = names.add(&"ä".repeat(MAX_NAME_BYTES));
        assert_eq!(names.text(name), "ä".repeat(MAX_NAME_BYTES / 2));
        let odd = names.add(&format!("x{}", "ä".repeat(MAX_NAME_BYTES)));
        assert_eq!(names.text(odd).len(), MAX_NAME_BYTES - 1);
    }

    #[test]
    fn places_in_code_keep_addresses_and_names_apart() {
        let mut names = Names::default();
        let symbol = Code::symbol(names.add("flush_tlb_func"));
        assert_eq!(names.code(symbol), "flush_tlb_func");
        for address in [0, 0x40_1000, 0x7fff_ffff_f000, 0xffff_ffff_8134_24a0] {
            assert_eq!(names.code(Code::address(address)), format!("{address:#x}"));
        }
    }

    #[test]
    fn what_would_command_a_terminal_is_escaped() {
        let mut names = Names::default();
        let (name, again) = (names.add("a\u{1b}[31mb"), names.add("a\u{1b}[31mb"));
        assert_eq!((names.text(name), again), ("a\\u{1b}[31mb", name));
        let long = names.add(&"\u{7}".repeat(MAX_NAME_BYTES));
        assert!(names.text(long).len() <= MAX_NAME_BYTES && !names.text(long).contains(char::is_control));
    }

    #[test]
    fn numbers_of_another_trace_are_harmless() {
        assert_eq!(Names::default().text(Name(99)), "?");
    }

    #[test]
    fn memory_stays_bounded_however_many_texts_a_file_has() {
        let mut names = Names::default();
        for i in 0..MAX_ENTRIES + 10 {
            names.add(&i.to_string());
        }
        assert_eq!(names.texts.len(), MAX_ENTRIES);
        assert_eq!(names.add("one more"), Names::UNKNOWN);
    }
}
