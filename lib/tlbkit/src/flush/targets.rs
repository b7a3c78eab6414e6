//! The CPUs and the spaces that a batch is about: sets of fixed size, so that a batch can live on a stack or in a task.
//!
//! Both may name too many, never too few: a CPU beyond the last word shares its bit with an earlier CPU, and every
//! sixty-fourth space shares a bit.

use crate::addr::CpuId;
use crate::space::cpu_set::{CPUS_PER_WORD, for_each_cpu, split};
use crate::space::{AddressSpace, SpaceId};
use crate::sync::{AtomicU64, Ordering};

/// Words of CPUs: a bit for each of 512. One under `cfg(narrow_sets)`, so that four CPUs are enough to share a bit.
const WORDS: usize = if cfg!(narrow_sets) { 1 } else { 8 };

/// The CPUs and the spaces of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchTargets {
    cpus: [u64; WORDS],
    spaces: u64,
}

impl BatchTargets {
    pub(crate) const EMPTY: Self = Self { cpus: [0; WORDS], spaces: 0 };

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.spaces = 0; // the CPUs of the next space then replace those of before
    }

    /// Adds `space` and the CPUs that are in its CPU set now. Its generation has been advanced: a CPU that joins later
    /// finds it.
    pub(crate) fn add<S: AsRef<[AtomicU64]>>(&mut self, space: &AddressSpace<S>) {
        let is_first = self.is_empty();
        self.spaces |= bit_of(space.id);
        if let [word] = space.cpus().words() {
            let before = if is_first { 0 } else { self.cpus[0] };
            // Relaxed: read after the PTE was changed, by the fence in `advance`. If a CPU has left the set, what it
            // did in the space is over before the frames come out, by the fence in `announce`, which comes later.
            self.cpus[0] = before | word.load(Ordering::Relaxed);
        } else if is_first {
            self.take_words(space.cpus().words());
        } else {
            self.add_words(space.cpus().words());
        }
    }

    /// Adds those of another batch.
    pub(crate) fn add_all(&mut self, other: &Self) {
        if self.is_empty() || other.is_empty() {
            *self = if self.is_empty() { *other } else { *self };
            return;
        }
        self.spaces |= other.spaces;
        self.cpus.iter_mut().zip(other.cpus).for_each(|(word, more)| *word |= more);
    }

    /// Replaces the CPUs by those of a set that does not fit one word.
    fn take_words(&mut self, words: &[AtomicU64]) {
        self.cpus = [0; WORDS];
        self.add_words(words);
    }

    /// Adds the CPUs of such a set.
    fn add_words(&mut self, words: &[AtomicU64]) {
        for (index, word) in words.iter().enumerate() {
            self.cpus[index % WORDS] |= word.load(Ordering::Relaxed); // Relaxed: as in `add`
        }
    }

    /// Takes out those of the machine's `cpus` CPUs that `hold_nothing`: of CPUs that share a bit, if all of them do.
    pub(crate) fn leave_out(&mut self, cpus: usize, hold_nothing: impl Fn(CpuId) -> bool) {
        for (index, word) in self.cpus.iter_mut().enumerate() {
            for_each_cpu(index, *word, |CpuId(first)| {
                let mut sharing = (first..cpus as u32).step_by(WORDS * CPUS_PER_WORD as usize);
                if sharing.all(|cpu| hold_nothing(CpuId(cpu))) {
                    *word &= !split(CpuId(first)).1;
                }
            });
        }
    }

    /// The CPUs in the word at `index` of a CPU set that may hold translations of the batch.
    #[inline]
    pub(crate) const fn word(&self, index: usize) -> u64 {
        self.cpus[index % WORDS]
    }

    /// True if a CPU may hold translations of the batch.
    pub(crate) fn has_cpus(&self) -> bool {
        self.cpus.iter().any(|&word| word != 0)
    }

    /// True if `space` may be one of the batch.
    #[inline]
    pub(crate) const fn has_space(&self, space: SpaceId) -> bool {
        self.spaces & bit_of(space) != 0
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.spaces == 0
    }
}

/// The bit of a space among sixty-four.
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
        let mut targets = BatchTargets::EMPTY;
        assert!(targets.is_empty());
        targets.add(&space);
        assert_eq!([0, 1, 9].map(|index| targets.word(index)), [0, 1 << 3, 1 << 3]);
        assert_eq!([6, 7, 70].map(|id| targets.has_space(SpaceId(id))), [true, false, true]);
    }

    #[test]
    fn of_cpus_that_share_a_bit_all_must_hold_nothing() {
        let words = [const { AtomicU64::new(0) }; 10];
        words[0].store(1 << 3 | 1 << 5, Ordering::Relaxed); // Relaxed: as above
        let space = AddressSpace::new(SpaceId(70), SpaceToken(0), PhysAddr(0), words);
        let mut targets = BatchTargets::EMPTY;
        targets.add(&space);
        targets.leave_out(640, |cpu| cpu.0 == 3 || cpu.0 % 512 == 5);
        assert_eq!(targets.word(0), 1 << 3, "CPU 515 shares the bit of CPU 3");
        targets.leave_out(515, |cpu| cpu.0 == 3);
        assert_eq!(targets.word(0), 0, "there is no such CPU");
    }

    /// Nothing is left of what was there before, whether the CPUs fit one word or not.
    #[test]
    fn after_clear_only_the_next_space_is_meant() {
        fn space<const N: usize>(id: u64, cpus: u64) -> AddressSpace<[AtomicU64; N]> {
            let words = [const { AtomicU64::new(0) }; N];
            words[N - 1].store(cpus, Ordering::Relaxed); // Relaxed: as above
            AddressSpace::new(SpaceId(id), SpaceToken(0), PhysAddr(0), words)
        }
        let (mut narrow, mut wide) = (BatchTargets::EMPTY, BatchTargets::EMPTY);
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
