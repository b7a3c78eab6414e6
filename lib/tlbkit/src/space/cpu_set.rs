//! A set of CPUs, one bit each, sized by the number of CPUs found at boot. The storage belongs to the kernel.
//!
//! The CPU set of a space (Linux: `mm_cpumask`) may name too many CPUs, never too few (C-07): a CPU joins before it
//! loads the space, and only that CPU takes itself out again, until the space ends.

use core::fmt;

use crate::addr::CpuId;
use crate::sync::{AtomicU64, Ordering};

/// Bits of a word that are used. Two under `cfg(narrow_sets)`, so that four CPUs in a test are enough for what kernels
/// meet on hundreds: sets of several words, and inboxes with a top level.
pub(crate) const CPUS_PER_WORD: u32 = if cfg!(narrow_sets) { 2 } else { 64 };

/// A set that CPUs join and leave concurrently.
#[derive(Clone, Copy)]
pub struct AtomicCpuSet<'k> {
    words: &'k [AtomicU64],
}

/// Words that a set needs for `cpus` CPUs.
#[must_use]
pub(crate) const fn words_for(cpus: usize) -> usize {
    cpus.div_ceil(CPUS_PER_WORD as usize)
}

/// The word of `cpu`, and its bit there.
pub(crate) const fn split(cpu: CpuId) -> (usize, u64) {
    ((cpu.0 / CPUS_PER_WORD) as usize, 1 << (cpu.0 % CPUS_PER_WORD))
}

/// The first CPU named in `bits`, the word at `index` of a set; some other one if there is none.
#[inline(always)]
pub(crate) const fn first_cpu(index: usize, bits: u64) -> CpuId {
    CpuId(index as u32 * CPUS_PER_WORD + bits.trailing_zeros())
}

/// All CPUs of the last word of a set for `cpus` CPUs.
pub(crate) const fn last_word(cpus: usize) -> u64 {
    (u64::MAX >> (u64::BITS - CPUS_PER_WORD)) >> ((cpus as u32).wrapping_neg() % CPUS_PER_WORD)
}

impl<'k> AtomicCpuSet<'k> {
    /// A set in `words`, which must be zero for an empty one.
    #[must_use]
    pub const fn new(words: &'k [AtomicU64]) -> Self {
        Self { words }
    }

    /// True if `cpu` is in the set.
    ///
    /// # Panics
    /// If `cpu` is beyond the set's storage; so do the other methods.
    #[must_use]
    pub fn contains(&self, cpu: CpuId, order: Ordering) -> bool {
        let (word, bit) = split(cpu);
        self.words[word].load(order) & bit != 0
    }

    /// Adds `cpu` and returns what its word held before. The caller's `order` decides what it is ordered with.
    pub fn add(&self, cpu: CpuId, order: Ordering) -> u64 {
        let (word, bit) = split(cpu);
        self.words[word].fetch_or(bit, order)
    }

    /// Adds the calling CPU, if it is not a member yet.
    ///
    /// # Panics
    /// If `cpu` is beyond the set's storage, even where that is a single word: otherwise one bit would stand for two
    /// CPUs, and each would believe that it is alone.
    #[inline(always)]
    pub(crate) fn join(&self, cpu: CpuId) {
        let (index, bit) = split(cpu);
        let word = &self.words[index];
        // Relaxed: only this CPU writes its bit, so it sees the newest value.
        if word.load(Ordering::Relaxed) & bit == 0 {
            // Relaxed: ordered before the generation is read by the fence in `announce_switch`.
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes `cpu` out. True if it was a member.
    pub fn remove(&self, cpu: CpuId, order: Ordering) -> bool {
        let (word, bit) = split(cpu);
        self.words[word].fetch_and(!bit, order) & bit != 0
    }

    /// True if no other CPU than `cpu` is in the set.
    #[inline(always)]
    pub(crate) fn holds_only(&self, cpu: CpuId, order: Ordering) -> bool {
        let (own_word, own_bit) = split(cpu);
        let others = |index: usize, word: &AtomicU64| {
            word.load(order) & if index == own_word { !own_bit } else { !0 } // the caller's `order`
        };
        match self.words {
            [word] => others(own_word, word) == 0, // up to 64 CPUs: nothing to count
            words => words.iter().enumerate().all(|(index, word)| others(index, word) == 0),
        }
    }

    /// Calls `f` with each member that one pass over the words finds.
    pub(crate) fn for_each(&self, mut f: impl FnMut(CpuId)) {
        for (index, word) in self.words.iter().enumerate() {
            // Relaxed: the callers check each CPU again, or look at the set of a dying space, which no CPU joins.
            for_each_cpu(index, word.load(Ordering::Relaxed), &mut f);
        }
    }

    /// The words of the set.
    #[must_use]
    pub const fn words(&self) -> &'k [AtomicU64] {
        self.words
    }
}

/// Knows which CPUs are offline or were declared stopped. `cpu/state.rs` implements it.
pub(crate) trait Attendance: Sync {
    /// True if `cpu` is offline, so that nobody waits for it.
    fn is_absent(&self, cpu: CpuId) -> bool;
}

/// The CPUs that have not answered a flush yet. As a text, `CPU 2` or `CPU 2, CPU 5`. A CPU that went offline, or was
/// [declared stopped](crate::Tlb::declare_stopped), is not among them: nobody waits for it.
#[derive(Clone, Copy)]
pub struct Missing<'a> {
    pub(crate) first: AtomicCpuSet<'a>,
    /// More sets of that size, one after another.
    pub(crate) others: &'a [AtomicU64],
    pub(crate) attendance: &'a dyn Attendance,
    pub(crate) owes: Owes,
}

/// What a CPU that is missing has not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owes {
    Answer,
    /// The end of a switch. Its word is the only one of the set, and this is its index.
    Switch(usize),
}

impl Missing<'_> {
    /// Calls `f` with each of them.
    pub fn for_each(&self, mut f: impl FnMut(CpuId)) {
        let start = if let Owes::Switch(index) = self.owes { index } else { 0 };
        (0..self.first.words().len()).for_each(|index| for_each_cpu(start + index, self.present(index), &mut f));
    }

    /// What they have not done, as the beginning of a sentence that ends with their names: they have not answered a
    /// flush, or one of them does not end a switch, for which [`Cpu::destroy_later`](crate::Cpu::destroy_later) waits.
    #[must_use]
    pub const fn complaint(&self) -> &'static str {
        match self.owes {
            Owes::Answer => "a flush is not answered by ",
            Owes::Switch(_) => "a switch is not ended by ",
        }
    }

    /// A responder that has not answered, even if it is offline.
    pub(crate) fn any_responder(&self) -> Option<CpuId> {
        let mut last = None;
        (0..self.first.words().len())
            .for_each(|index| for_each_cpu(index, self.responders(index), |cpu| last = Some(cpu)));
        last
    }

    /// The word at `index` without the CPUs that are offline. Out of line: a kernel has a copy of `for_each` for each
    /// use.
    fn present(&self, index: usize) -> u64 {
        let responders = self.responders(index);
        if self.owes != Owes::Answer {
            return responders;
        }
        let mut present = responders;
        for_each_cpu(index, responders, |cpu| {
            present &= !if self.attendance.is_absent(cpu) { split(cpu).1 } else { 0 }
        });
        present
    }

    fn responders(&self, index: usize) -> u64 {
        let words = self.first.words();
        let others = self.others.iter().skip(index).step_by(words.len());
        // Relaxed: this is for a report; the CPUs that it names may answer meanwhile.
        others.fold(words[index].load(Ordering::Relaxed), |bits, word| bits | word.load(Ordering::Relaxed))
    }
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut result, mut before) = (Ok(()), "");
        self.for_each(|cpu| {
            result = result.and_then(|()| write!(f, "{before}CPU {}", cpu.0));
            before = ", ";
        });
        result
    }
}

/// Calls `f` with each CPU in `bits`, the word at `index` of a set.
#[inline]
pub(crate) fn for_each_cpu(index: usize, mut bits: u64, mut f: impl FnMut(CpuId)) {
    while bits != 0 {
        f(first_cpu(index, bits));
        bits &= bits - 1;
    }
}

#[cfg(all(test, not(any(loom, narrow_sets))))]
mod tests {
    use super::*;

    /// Relaxed: the tests have one thread.
    const ORDER: Ordering = Ordering::Relaxed;

    fn cpus_of(set: &AtomicCpuSet<'_>) -> [u32; 3] {
        let mut found = [u32::MAX; 3];
        let mut n = 0;
        for (index, word) in set.words().iter().enumerate() {
            for_each_cpu(index, word.load(ORDER), |cpu| {
                found[n] = cpu.0;
                n += 1;
            });
        }
        found
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_cpu_beyond_a_set_of_one_word_is_not_taken_for_another() {
        AtomicCpuSet::new(&[AtomicU64::new(1 << 6)]).join(CpuId(CPUS_PER_WORD + 6));
    }

    #[test]
    fn members_are_iterated_in_order_across_words() {
        let words = [const { AtomicU64::new(0) }; 2];
        let set = AtomicCpuSet::new(&words);
        for cpu in [127, 0, 64] {
            set.add(CpuId(cpu), ORDER);
        }
        assert_eq!(cpus_of(&set), [0, 64, 127]);
        set.remove(CpuId(64), ORDER);
        assert!(!set.contains(CpuId(64), ORDER));
        assert!(set.contains(CpuId(127), ORDER));
    }

    #[test]
    fn a_word_holds_sixty_four() {
        assert_eq!([words_for(1), words_for(64), words_for(65), words_for(4096)], [1, 1, 2, 64]);
    }
}
