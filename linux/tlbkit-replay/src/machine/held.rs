//! What the TLB of one CPU may hold of one space, deduced from page faults and from how long the space has run there.
//!
//! Several runs share this state if only their ceilings differ. They are in the order of their ceilings, the lowest
//! first. Whenever a run drops everything, all runs with lower ceilings drop everything too. So each run holds the
//! newest part of what the last run holds. Pages lie in layers by age, and a run holds the pages from its own layer on.

use super::page_set::PageSet;
use crate::op::Caller;
use crate::tally::Bounds;
use std::ops::Range;

/// Entries that a caller's flush dropped and that were walked for again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) walks: u64,
    pub(super) debtor: Option<Caller>,
}

/// A flush that drops everything that is held of a space.
pub(super) struct Drop<'d> {
    /// How many runs drop everything: this many from the first on.
    pub(super) runs: usize,
    /// The most valid entries that can have been held.
    pub(super) most: u64,
    /// The pages that are not lost, because they were revoked.
    pub(super) revoked: &'d Range<u64>,
    /// How many page walks a program can do in a nanosecond.
    pub(super) walks_per_ns: f64,
    /// The caller whose flush it is.
    pub(super) who: Option<Caller>,
}

/// The state of one run.
#[derive(Clone, Default)]
struct Own {
    /// The run holds the layers from this one on.
    layer: usize,
    /// The value of [`Held::ran_ns`] when the run last held nothing, in nanoseconds.
    ran_before_ns: u64,
    /// How many entries may have to be walked for again, and whose flush dropped them.
    debt: u64,
    debtor: Option<Caller>,
}

impl Own {
    /// What was walked for again since everything was last dropped: at most the `could` walks that the time allowed.
    fn settle(&self, could: u64) -> Due {
        Due { walks: self.debt.min(could), debtor: self.debtor }
    }
}

/// What the TLB of a CPU may hold of a space, for all runs.
pub(super) struct Held {
    /// The pages whose fault filled an entry that nothing has dropped since. Each page is in one layer, and the last
    /// layer is the newest.
    layers: Vec<PageSet>,
    /// For how long the space has run on the CPU, in nanoseconds.
    ran_ns: u64,
    /// The state of each run, the one with the lowest ceiling first.
    own: Box<[Own]>,
}

impl Held {
    pub(super) fn new(runs: usize) -> Self {
        Self { layers: vec![PageSet::default()], ran_ns: 0, own: vec![Own::default(); runs].into() }
    }

    /// The space has run for `ns` nanoseconds more.
    pub(super) const fn run(&mut self, ns: u64) {
        self.ran_ns += ns;
    }

    /// A page fault has filled an entry.
    pub(super) fn touch(&mut self, page: u64) {
        let (youngest, older) = self.layers.split_last_mut().expect("there is one");
        youngest.insert(page);
        older.iter_mut().for_each(|layer| layer.remove(page));
    }

    /// The first run that certainly holds an entry for any of `pages`. All runs behind it hold one too.
    pub(super) fn first_with(&self, pages: &Range<u64>) -> usize {
        let youngest = self.layers.iter().rposition(|layer| layer.meets(pages));
        let is_in = |own: &Own| youngest.is_some_and(|youngest| own.layer <= youngest);
        self.own.iter().position(is_in).unwrap_or(self.own.len())
    }

    /// Drops one entry that was revoked, so that it does not count as lost.
    pub(super) fn drop_page(&mut self, page: u64) {
        self.layers.iter_mut().for_each(|layer| layer.remove(page));
    }

    /// Whether this state says nothing, as if the space had never run on the CPU.
    pub(super) fn is_nothing(&self) -> bool {
        let is_nothing = |own: &Own| own.debt == 0 && own.ran_before_ns == self.ran_ns;
        self.layers.iter().all(PageSet::is_empty) && self.own.iter().all(is_nothing)
    }

    /// Drops everything in some runs. Tells each of these runs what it lost, and what it had walked for again since it
    /// last dropped everything.
    pub(super) fn empty(&mut self, drop: &Drop<'_>, mut tell: impl FnMut(usize, Bounds, Due)) {
        let Drop { runs, most, who, .. } = *drop;
        let (mut layer, mut known) = (self.layers.len(), 0);
        for (run, own) in self.own.iter_mut().enumerate().take(runs) {
            while layer > own.layer {
                layer -= 1;
                known += self.layers[layer].count_outside(drop.revoked);
            }
            let could = ((self.ran_ns - own.ran_before_ns) as f64 * drop.walks_per_ns) as u64;
            let due = own.settle(could);
            let lost = Bounds { low: known.min(most), high: most.min(could).max(known.min(most)) };
            // Entries that were not walked for again yet may still have to be.
            own.debt = (lost.high + own.debt - due.walks).min(most);
            (own.debtor, own.ran_before_ns) = (who, self.ran_ns);
            tell(run, lost, due);
        }
        self.forget(runs);
    }

    /// The first `runs` runs hold no page any more.
    fn forget(&mut self, runs: usize) {
        if runs == self.own.len() {
            self.layers.truncate(1);
            self.layers[0].clear();
            self.own.iter_mut().for_each(|own| own.layer = 0);
            return;
        }
        if self.layers.last().is_some_and(|youngest| !youngest.is_empty()) {
            self.layers.push(PageSet::default());
        }
        let youngest = self.layers.len() - 1;
        self.own[..runs].iter_mut().for_each(|own| own.layer = youngest);
        for layer in (1..youngest).rev() {
            if self.own.iter().all(|own| own.layer != layer) {
                let pages = self.layers.remove(layer);
                self.layers[layer - 1].join(pages);
                self.own.iter_mut().filter(|own| own.layer > layer).for_each(|own| own.layer -= 1);
            }
        }
    }

    /// The replay ends. Tells each run what it has walked for again since it last dropped everything.
    pub(super) fn settle(&self, walks_per_ns: f64, mut tell: impl FnMut(usize, Due)) {
        for (run, own) in self.own.iter().enumerate() {
            let could = ((self.ran_ns - own.ran_before_ns) as f64 * walks_per_ns) as u64;
            tell(run, own.settle(could));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOTHING: Range<u64> = 0..0;

    fn empty(held: &mut Held, runs: usize, most: u64, revoked: &Range<u64>, walks_per_ns: f64) -> Vec<(Bounds, u64)> {
        let mut told = Vec::new();
        let drop = Drop { runs, most, revoked, walks_per_ns, who: None };
        held.empty(&drop, |_, lost, due| told.push((lost, due.walks)));
        told
    }

    #[test]
    fn refills_fit_into_the_time_before_and_after() {
        let mut held = Held::new(1);
        held.run(100);
        assert_eq!(empty(&mut held, 1, 1000, &NOTHING, 0.5), [(Bounds { low: 0, high: 50 }, 0)]);
        held.run(20);
        assert_eq!(empty(&mut held, 1, 1000, &NOTHING, 0.5), [(Bounds { low: 0, high: 10 }, 10)]);
        held.run(1000);
        let mut walks = 0;
        held.settle(0.5, |_, due| walks = due.walks);
        assert_eq!(walks, 50, "40 left from the first time, 10 from the second");
    }

    #[test]
    fn what_was_revoked_is_not_lost() {
        let mut held = Held::new(1);
        held.run(1000);
        [1, 2, 7].into_iter().for_each(|page| held.touch(page));
        assert_eq!(empty(&mut held, 1, 2, &(1..3), 1.0), [(Bounds { low: 1, high: 2 }, 0)]);
    }

    proptest! {
        #[test]
        fn runs_together_hold_what_each_alone_holds(
            steps in proptest::collection::vec((0u8..6, 0u64..200, 1usize..=4), 0..80),
        ) {
            const RUNS: usize = 4;
            let mut together = Held::new(RUNS);
            let mut alone: Vec<Held> = (0..RUNS).map(|_| Held::new(1)).collect();
            for (step, page, runs) in steps {
                let revoked = page..page + 9;
                match step {
                    0..=2 => alone.iter_mut().chain([&mut together]).for_each(|held| held.touch(page)),
                    3 => alone.iter_mut().chain([&mut together]).for_each(|held| held.drop_page(page)),
                    4 => alone.iter_mut().chain([&mut together]).for_each(|held| held.run(page)),
                    _ => {
                        let told = empty(&mut together, runs, 50, &revoked, 0.3);
                        let each = alone[..runs].iter_mut().flat_map(|held| empty(held, 1, 50, &revoked, 0.3));
                        prop_assert_eq!(told, each.collect::<Vec<_>>());
                    }
                }
                let first = alone.iter().position(|held| held.first_with(&revoked) == 0).unwrap_or(RUNS);
                prop_assert_eq!(together.first_with(&revoked), first);
                prop_assert_eq!(together.is_nothing(), alone.iter().all(Held::is_nothing));
                prop_assert!(together.layers.len() <= RUNS);
            }
        }
    }
}
