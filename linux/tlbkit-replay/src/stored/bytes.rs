//! Numbers of variable length, and numbers for values that come again and again.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Gives each different value a number, in the order in which the values came.
pub(super) struct Numbered<T> {
    values: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Copy + Eq + Hash> Numbered<T> {
    pub(super) fn number(&mut self, value: T) -> u64 {
        let number = *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        });
        u64::from(number)
    }

    pub(super) fn value(&self, number: u64) -> T {
        self.values[number as usize]
    }
}

/// Writes numbers as bytes.
#[derive(Default)]
pub(super) struct Put(pub(super) Vec<u8>);

impl Put {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Writes a number, seven bits a byte, the lowest first. The highest bit of a byte says that more follow.
    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Writes the difference of both numbers, so that a small one takes few bytes whatever its sign is.
    pub(super) fn difference(&mut self, value: u64, before: u64) {
        let difference = value.wrapping_sub(before).cast_signed();
        self.number(((difference << 1) ^ (difference >> 63)).cast_unsigned());
    }
}

/// Reads numbers from bytes that [`Put`] wrote.
///
/// # Panics
/// Its functions panic if more is read than was written.
pub(super) struct Take<'b>(pub(super) &'b [u8]);

impl Take<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("a block has what its count says");
        self.0 = rest;
        *first
    }

    #[inline]
    pub(super) fn number(&mut self) -> u64 {
        // Most numbers have one or two bytes.
        match *self.0 {
            [only, ..] if only < 0x80 => {
                self.0 = &self.0[1..];
                u64::from(only)
            }
            [low, high, ..] if high < 0x80 => {
                self.0 = &self.0[2..];
                u64::from(low & 0x7f) | u64::from(high) << 7
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }

    /// Reads a number that was written as the difference to `before`.
    #[inline]
    pub(super) fn value(&mut self, before: u64) -> u64 {
        let folded = self.number();
        before.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg())
    }
}
