//! The words that CPUs share, known by their addresses: what they hold, and the stores that a buffer held back.
#![expect(unsafe_code, reason = "loads and stores by address")]

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tlbkit::sync::Word;

/// Shared words in the order in which they were first used: the same on every host, as their addresses are not.
#[derive(Default)]
pub(crate) struct Words(Vec<Word>);

impl Words {
    /// The number of `word`, whose size counts: a locked access reports only its address.
    pub(crate) fn number(&mut self, word: Word) -> usize {
        let place = self.0.iter().position(|known| known.address == word.address).unwrap_or_else(|| {
            self.0.push(word);
            self.0.len() - 1
        });
        self.0[place].bytes = self.0[place].bytes.max(word.bytes);
        place
    }
    /// The word of that number.
    pub(crate) fn get(&self, number: usize) -> Word {
        self.0[number]
    }

    /// All of them, in that order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Word> + '_ {
        self.0.iter().copied()
    }
}

/// What `word` holds in memory.
pub(crate) fn read_word(word: Word) -> u64 {
    // SAFETY: as in `write_word`. Relaxed: one host thread.
    unsafe {
        if word.bytes == 4 {
            u64::from((*ptr::with_exposed_provenance::<AtomicU32>(word.address)).load(Ordering::Relaxed))
        } else {
            (*ptr::with_exposed_provenance::<AtomicU64>(word.address)).load(Ordering::Relaxed)
        }
    }
}

/// Writes a delayed store to its word.
pub(crate) fn write_word(word: Word, value: u64) {
    // SAFETY: the address was reported by an atomic of this size that belongs to the running world: CPUs, matrix,
    // kernel map and spaces outlive every step, and no buffer is drained after the last. Relaxed: one host thread.
    unsafe {
        if word.bytes == 4 {
            (*ptr::with_exposed_provenance::<AtomicU32>(word.address)).store(value as u32, Ordering::Relaxed);
        } else {
            (*ptr::with_exposed_provenance::<AtomicU64>(word.address)).store(value, Ordering::Relaxed);
        }
    }
}
