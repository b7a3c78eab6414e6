//! Numbers of variable length (LEB128), and columns that hold the differences of such numbers.

/// Appends `value` to `bytes`: seven bits a byte, the low ones first, the top bit set on all bytes but the last.
pub(super) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Takes a number off the front of `bytes`. None if it is incomplete or does not fit into 64 bits.
pub(super) fn get(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Moves the sign to bit 0, so that small negative numbers are small.
fn fold_sign(value: u64) -> u64 {
    value << 1 ^ (value.cast_signed() >> 63).cast_unsigned()
}

/// The inverse of [`fold_sign`].
fn unfold_sign(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

/// A column of differences that is written.
#[derive(Default)]
pub(super) struct Differences {
    pub(super) bytes: Vec<u8>,
    last: u64,
}

impl Differences {
    /// Appends the difference of `value` to the number before.
    pub(super) fn put(&mut self, value: u64) {
        put(&mut self.bytes, fold_sign(value.wrapping_sub(self.last)));
        self.last = value;
    }

    /// Begins a new column.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.last = 0;
    }
}

/// A column of differences that is read: sums of the differences are the numbers that were written.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums<'a> {
    rest: &'a [u8],
    last: u64,
}

impl<'a> Sums<'a> {
    /// Reads the column that `rest` begins with.
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest, last: 0 }
    }

    /// The bytes that were not read yet.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// The next number. None if there is no whole one left.
    pub(super) fn get(&mut self) -> Option<u64> {
        self.last = self.last.wrapping_add(unfold_sign(get(&mut self.rest)?));
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn columns_give_back_what_was_put(values: Vec<u64>) {
            let mut column = Differences::default();
            values.iter().for_each(|&value| column.put(value));
            let mut sums = Sums::new(&column.bytes);
            for value in values {
                prop_assert_eq!(sums.get(), Some(value));
            }
            prop_assert_eq!(sums.get(), None);
        }
    }

    #[test]
    fn small_steps_of_either_sign_take_one_byte() {
        let mut column = Differences::default();
        [63, 0, 60, u64::MAX].into_iter().for_each(|value| column.put(value));
        assert_eq!(column.bytes.len(), 4);
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(get(&mut &[0xff; 11][..]), None);
        let mut bytes = vec![0xff; 9];
        bytes.push(2);
        assert_eq!(get(&mut &bytes[..]), None);
    }
}
