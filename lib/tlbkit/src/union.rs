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

    /// Adds `space` and the CPUs that are in its set now. Its generation has been advanced: whoever joins later finds
    /// it.
    #[inline]
    pub(crate) fn add<S: AsRef<[AtomicU64]>>(&mut self, space: &AddressSpace<S>) {
        self.spaces |= bit_of(space.id);
        for (index, word) in space.cpus().words().iter().enumerate() {
            // Relaxed: read after the revocation, by the fence in `advance`. Of a CPU that has left the set, what it
            // did in the space is over before the frames come out, by the fence in `announce`, which comes later.
            self.cpus[index % WORDS] |= word.load(Ordering::Relaxed);
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
}
