//! A set of pages. A program mostly touches neighbouring pages, so 64 neighbours share a word.

use rustc_hash::FxHashMap;
use std::ops::Range;

/// How many pages share a word.
const WORD: u64 = 64;

/// A set of base pages, by their numbers.
#[derive(Default)]
pub(super) struct PageSet {
    /// All words but the one that was written last, by their numbers.
    words: FxHashMap<u64, u64>,
    /// The word that was written last, and its number. It is kept apart because the next page mostly lies in it too.
    at_hand: u64,
    number: u64,
    count: u64,
}

impl PageSet {
    pub(super) fn insert(&mut self, page: u64) {
        if page / WORD != self.number {
            self.turn_to(page / WORD);
        }
        self.count += u64::from(self.at_hand & bit(page) == 0);
        self.at_hand |= bit(page);
    }

    fn turn_to(&mut self, number: u64) {
        if self.at_hand != 0 {
            self.words.insert(self.number, self.at_hand);
        }
        self.at_hand = if self.words.is_empty() { 0 } else { self.words.remove(&number).unwrap_or(0) };
        self.number = number;
    }

    pub(super) fn remove(&mut self, page: u64) {
        if self.count == 0 {
            return;
        }
        if page / WORD == self.number {
            self.count -= u64::from(self.at_hand & bit(page) != 0);
            self.at_hand &= !bit(page);
            return;
        }
        let Some(word) = self.words.get_mut(&(page / WORD)) else { return };
        self.count -= u64::from(*word & bit(page) != 0);
        *word &= !bit(page);
        if *word == 0 {
            self.words.remove(&(page / WORD));
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many pages there are outside of `range`.
    pub(super) fn count_outside(&self, range: &Range<u64>) -> u64 {
        self.count - self.inside(range).map(|word| u64::from(word.count_ones())).sum::<u64>()
    }

    /// Whether any page is in `range`.
    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        self.inside(range).any(|word| word != 0)
    }

    /// Of each word the bits of those of its pages that lie in `range`.
    fn inside(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let numbers = range.start / WORD..range.end.div_ceil(WORD).max(range.start / WORD);
        let is_short = numbers.end - numbers.start <= self.words.len() as u64;
        let at_hand = numbers.contains(&self.number).then_some((self.number, self.at_hand));
        // Either the words of the range are looked up, or all words of the set are gone through, whichever are fewer.
        let of_range = is_short.then(|| numbers.filter_map(|number| Some((number, *self.words.get(&number)?))));
        let of_set = (!is_short).then(|| self.words.iter().map(|(&number, &word)| (number, word)));
        let range = range.clone();
        let words = of_range.into_iter().flatten().chain(of_set.into_iter().flatten()).chain(at_hand);
        words.map(move |(number, word)| {
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
            steps in proptest::collection::vec((0u8..4, 0u64..300), 0..60),
            first in 0u64..310,
            length in 0u64..310,
        ) {
            let (mut set, mut plain) = (PageSet::default(), BTreeSet::new());
            for (step, page) in steps {
                match step {
                    0..=2 => {
                        set.insert(page);
                        plain.insert(page);
                    }
                    _ => {
                        set.remove(page);
                        plain.remove(&page);
                    }
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
