//! Which CPUs may hold translations of any of many spaces: a set of fixed size, so that it can lie on a stack.
//!
//! Both halves of it may name too many and never too few: a CPU beyond the words shares a bit with one before, and a
//! space shares its bit with each sixty-fourth.

use crate::address_space::{AddressSpace, SpaceId};
use crate::sync::{AtomicU64, Ordering};

/// Words of CPUs: a bit for each of 512. One under `cfg(narrow_sets)`, so that checkers meet CPUs that share a bit.
const WORDS: usize = if cfg!(narrow_sets) { 1 } else { 8 };

/// The CPUs and the spaces of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Union {
    cpus: [u64; WORDS],
    spaces: u64,
}

impl Union {
    pub(crate) const EMPTY: Self = Self { cpus: [0; WORDS], spaces: 0 };

    /// Nobody is meant any more.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.spaces = 0; // its CPUs are those of the next space, which takes their place
    }

    /// Adds `space` and the CPUs that are in its set now. Its generation has been advanced: whoever joins later finds
    /// it.
    #[inline(always)]
    pub(crate) fn add<S: AsRef<[AtomicU64]>>(&mut self, space: &AddressSpace<S>) {
        let is_first = self.is_empty();
        self.spaces |= bit_of(space.id);
        if let [word] = space.cpus().words() {
            let before = if is_first { 0 } else { self.cpus[0] };
            // Relaxed: read after the revocation, by the fence in `advance`. Of a CPU that has left the set, what it
            // did in the space is over before the frames come out, by the fence in `begin_flush`, which comes later.
            self.cpus[0] = before | word.load(Ordering::Relaxed);
        } else if is_first {
            self.take_words(space.cpus().words());
        } else {
            self.add_words(space.cpus().words());
        }
    }

    /// The CPUs of a set that does not fit one word, and no others.
    #[inline(never)]
    fn take_words(&mut self, words: &[AtomicU64]) {
        self.cpus = [0; WORDS];
        self.add_words(words);
    }

    /// The CPUs of such a set too.
    #[inline(never)]
    fn add_words(&mut self, words: &[AtomicU64]) {
        for (index, word) in words.iter().enumerate() {
            self.cpus[index % WORDS] |= word.load(Ordering::Relaxed); // Relaxed: as in `add`
        }
    }

    /// The CPUs that it may mean in the word at `index` of a set.
    #[inline]
    pub(crate) const fn word(&self, index: usize) -> u64 {
        self.cpus[index % WORDS]
    }

    /// True if it may mean `space`.
    #[inline]
    pub(crate) const fn has_space(&self, space: SpaceId) -> bool {
        self.spaces & bit_of(space) != 0
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.spaces == 0
    }
}

/// The bit that stands for a space among sixty-four.
const fn bit_of(space: SpaceId) -> u64 {
    1 << (space.0 % 64)
}

#[cfg(all(test, not(any(loom, narrow_sets))))]
mod tests {
    use super::*;
    use crate::addr::{PhysAddr, SpaceToken};

    #[test]
    fn a_cpu_beyond_the_words_shares_a_bit_and_none_is_lost() {
        let words = [const { AtomicU64::new(0) }; 10];
        words[9].store(1 << 3, Ordering::Relaxed); // Relaxed: the tests have one thread
        let space = AddressSpace::new(SpaceId(70), SpaceToken(0), PhysAddr(0), words);
        let mut union = Union::EMPTY;
        assert!(union.is_empty());
        union.add(&space);
        assert_eq!([0, 1, 9].map(|index| union.word(index)), [0, 1 << 3, 1 << 3]);
        assert_eq!([6, 7, 70].map(|id| union.has_space(SpaceId(id))), [true, false, true]);
    }

    /// Of what it meant before nothing is left, whether CPUs fit one word or not.
    #[test]
    fn one_that_was_cleared_means_the_next_space_alone() {
        fn space<const N: usize>(id: u64, cpus: u64) -> AddressSpace<[AtomicU64; N]> {
            let words = [const { AtomicU64::new(0) }; N];
            words[N - 1].store(cpus, Ordering::Relaxed); // Relaxed: as above
            AddressSpace::new(SpaceId(id), SpaceToken(0), PhysAddr(0), words)
        }
        let (mut narrow, mut wide) = (Union::EMPTY, Union::EMPTY);
        for (id, cpus) in [(1, 0b0011), (2, 0b1100)] {
            narrow.clear();
            wide.clear();
            assert!(narrow.is_empty() && wide.is_empty());
            narrow.add(&space::<1>(id, cpus));
            wide.add(&space::<10>(id, cpus));
        }
        assert_eq!((narrow.word(0), wide.word(9)), (0b1100, 0b1100));
        assert!(narrow.has_space(SpaceId(2)) && !narrow.has_space(SpaceId(1)));
        narrow.add(&space::<1>(3, 0b0001));
        wide.add(&space::<10>(3, 0b0001));
        assert_eq!((narrow.word(0), wide.word(9)), (0b1101, 0b1101), "a second space is added");
    }
}
