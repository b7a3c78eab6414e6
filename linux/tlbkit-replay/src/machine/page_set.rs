//! A set of pages. A program faults its pages in one beside the other, so 64 neighbours share a word.

use rustc_hash::FxHashMap;
use std::ops::Range;

/// Pages of a word.
const WORD: u64 = 64;

/// Pages, by number.
#[derive(Default)]
pub(super) struct PageSet {
    words: FxHashMap<u64, u64>,
    count: u64,
}

impl PageSet {
    pub(super) fn insert(&mut self, page: u64) {
        let word = self.words.entry(page / WORD).or_default();
        self.count += u64::from(*word & bit(page) == 0);
        *word |= bit(page);
    }

    pub(super) fn remove(&mut self, page: u64) {
        let Some(word) = self.words.get_mut(&(page / WORD)) else { return };
        self.count -= u64::from(*word & bit(page) != 0);
        *word &= !bit(page);
        if *word == 0 {
            self.words.remove(&(page / WORD));
        }
    }

    /// Removes all of them, and gives their memory back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there are outside of `range`.
    pub(super) fn count_outside(&self, range: &Range<u64>) -> u64 {
        self.count - self.inside(range).map(|word| u64::from(word.count_ones())).sum::<u64>()
    }

    /// Whether there is any in `range`.
    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        self.inside(range).any(|word| word != 0)
    }

    /// What each word has of `range`.
    fn inside(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let numbers = range.start / WORD..range.end.div_ceil(WORD).max(range.start / WORD);
        let is_short = numbers.end - numbers.start <= self.words.len() as u64;
        // Whichever are fewer: the words of the range, or those of the set.
        let of_range = is_short.then(|| numbers.filter_map(|number| Some((number, *self.words.get(&number)?))));
        let of_set = (!is_short).then(|| self.words.iter().map(|(&number, &word)| (number, word)));
        let range = range.clone();
        of_range.into_iter().flatten().chain(of_set.into_iter().flatten()).map(move |(number, word)| {
            let first = number * WORD;
            let [low, high] = [range.start, range.end].map(|page| page.clamp(first, first + WORD) - first);
            word & below(high) & !below(low)
        })
    }
}

const fn bit(page: u64) -> u64 {
    1 << (page % WORD)
}

/// The bits of the first `pages` pages of a word.
const fn below(pages: u64) -> u64 {
    if pages >= WORD { u64::MAX } else { (1 << pages) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(
            steps in proptest::collection::vec((any::<bool>(), 0u64..300), 0..60),
            first in 0u64..310,
            length in 0u64..310,
        ) {
            let (mut set, mut plain) = (PageSet::default(), BTreeSet::new());
            for (is_new, page) in steps {
                if is_new {
                    set.insert(page);
                    plain.insert(page);
                } else {
                    set.remove(page);
                    plain.remove(&page);
                }
            }
            let range = first..first + length;
            let outside = plain.iter().filter(|page| !range.contains(page)).count() as u64;
            prop_assert_eq!(set.count_outside(&range), outside);
            prop_assert_eq!(set.meets(&range), plain.range(range).next().is_some());
            prop_assert_eq!(set.is_empty(), plain.is_empty());
        }
    }
}
