//! Texts, places in code and call stacks as small numbers, so that events are plain values that can be copied.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::num::NonZeroU32;

/// The most different texts, and the most different stacks, that are kept. No honest trace has as many, and a hostile
/// file cannot make the memory grow further.
const MAX_ENTRIES: usize = 1 << 18;
/// The longest text that is kept; longer ones are cut.
const MAX_NAME_BYTES: usize = 256;
/// The most frames of a stack that are kept, Linux's own default; deeper stacks are cut.
pub(crate) const MAX_FRAMES: usize = 127;

/// The number of a text in the [`Names`] of its trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(pub(crate) u32);

/// The number of a call stack in the [`Names`] of its trace.
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

/// A place in code: the name of a function where it is known, and an address otherwise.
///
/// Both fit into one word. The upper 17 bits of every address that x86-64 allows are equal, so a word in which they
/// differ is free to stand for a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(pub(crate) u64);

/// The upper half of a word that stands for a name: no address that x86-64 allows.
const HOLE: u64 = 0x7c0d_e000_0000_0000;

impl Code {
    /// The place at `address`.
    #[must_use]
    pub const fn address(address: u64) -> Self {
        Self(address)
    }

    /// The word itself, which is the address unless [`Code::name`] gives a name.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The function whose name has the number `name`.
    #[must_use]
    pub const fn symbol(name: Name) -> Self {
        Self(HOLE | name.0 as u64)
    }

    /// The name of the function, or none if only an address is known.
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
    /// The number of the text "?", which stands for an unknown name.
    pub const UNKNOWN: Name = Name(0);

    /// The number of `text`, which is added if it is new. It is [`Names::UNKNOWN`] if there are too many texts already.
    ///
    /// Texts beyond 256 bytes are cut. Control characters are kept as escapes: names come out of a file that nobody has
    /// checked, and are printed on a terminal.
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

    /// The number of the text that `bytes` hold up to the first zero. Bytes that are not UTF-8 become U+FFFD. Otherwise
    /// as [`Names::add`].
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) -> Name {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        self.add(&String::from_utf8_lossy(&bytes[..end]))
    }

    /// The number of the stack of these frames, innermost first, which is added if it is new. There is none for a stack
    /// without frames, and none if there are too many stacks already.
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

    /// The text of this number, or "?" if these names have none.
    #[must_use]
    pub fn text(&self, name: Name) -> &str {
        self.texts.get_index(name.0 as usize).map_or("?", |text| text)
    }

    /// The frames of the stack of this number, innermost first; empty if these names have none.
    #[must_use]
    pub fn stack(&self, id: StackId) -> &[Code] {
        self.stacks.get_index(id.index() as usize).map_or(&[], |frames| frames)
    }

    /// The name of the function if it is known, and the address in hexadecimal otherwise.
    #[must_use]
    pub fn code(&self, code: Code) -> String {
        code.name().map_or_else(|| format!("{:#x}", code.0), |name| self.text(name).to_owned())
    }
}

/// The longest begin of `text` that has at most [`MAX_NAME_BYTES`] bytes and splits no character.
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
