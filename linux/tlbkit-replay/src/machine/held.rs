//! What the TLB of one CPU may hold of one space, deduced from page faults and from how long the space has run there.

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
    /// The most valid entries that can have been held.
    pub(super) most: u64,
    /// The pages that are not lost, because they were revoked.
    pub(super) revoked: &'d Range<u64>,
    /// How many page walks a program can do in a nanosecond.
    pub(super) walks_per_ns: f64,
    /// The caller whose flush it is.
    pub(super) who: Option<Caller>,
}

/// What the TLB of a CPU may hold of a space.
#[derive(Default)]
pub(super) struct Held {
    /// The pages whose fault filled an entry that nothing has dropped since.
    pages: PageSet,
    /// For how long the space has run on the CPU since everything was last dropped, in nanoseconds.
    ran_ns: u64,
    /// How many entries may have to be walked for again, and whose flush dropped them.
    debt: u64,
    debtor: Option<Caller>,
}

impl Held {
    /// The space has run for `ns` nanoseconds more.
    pub(super) const fn run(&mut self, ns: u64) {
        self.ran_ns += ns;
    }

    /// A page fault has filled an entry.
    pub(super) fn touch(&mut self, page: u64) {
        self.pages.insert(page);
    }

    /// Whether an entry for any of `pages` is certainly held.
    pub(super) fn has_any(&self, pages: &Range<u64>) -> bool {
        self.pages.meets(pages)
    }

    /// Drops one entry that was revoked, so that it does not count as lost.
    pub(super) fn drop_page(&mut self, page: u64) {
        self.pages.remove(page);
    }

    /// Whether this state says nothing, as if the space had never run on the CPU.
    pub(super) fn is_nothing(&self) -> bool {
        self.pages.is_empty() && self.debt == 0 && self.ran_ns == 0
    }

    /// Drops everything. Returns what was lost, and what had been walked for again since everything was last dropped.
    pub(super) fn empty(&mut self, drop: &Drop<'_>) -> (Bounds, Due) {
        let Drop { most, who, revoked, walks_per_ns } = *drop;
        let due = self.due(walks_per_ns);
        let known = self.pages.count_outside(revoked).min(most);
        let lost = Bounds { low: known, high: most.min(self.could(walks_per_ns)).max(known) };
        // Entries that were not walked for again yet may still have to be.
        let debt = (lost.high + self.debt - due.walks).min(most);
        *self = Self { debt, debtor: who, ..Self::default() };
        (lost, due)
    }

    /// What was walked for again since everything was last dropped: at most what the time allowed.
    pub(super) fn due(&self, walks_per_ns: f64) -> Due {
        Due { walks: self.debt.min(self.could(walks_per_ns)), debtor: self.debtor }
    }

    fn could(&self, walks_per_ns: f64) -> u64 {
        (self.ran_ns as f64 * walks_per_ns) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(held: &mut Held, most: u64, revoked: &Range<u64>, walks_per_ns: f64) -> (Bounds, u64) {
        let (lost, due) = held.empty(&Drop { most, revoked, walks_per_ns, who: None });
        (lost, due.walks)
    }

    #[test]
    fn refills_fit_into_the_time_before_and_after() {
        let mut held = Held::default();
        held.run(100);
        assert_eq!(empty(&mut held, 1000, &(0..0), 0.5), (Bounds { low: 0, high: 50 }, 0));
        held.run(20);
        assert_eq!(empty(&mut held, 1000, &(0..0), 0.5), (Bounds { low: 0, high: 10 }, 10));
        held.run(1000);
        assert_eq!(held.due(0.5).walks, 50, "40 left from the first time, 10 from the second");
    }

    #[test]
    fn what_was_revoked_is_not_lost() {
        let mut held = Held::default();
        held.run(1000);
        [1, 2, 7].into_iter().for_each(|page| held.touch(page));
        assert_eq!(empty(&mut held, 2, &(1..3), 1.0), (Bounds { low: 1, high: 2 }, 0));
        assert!(!held.has_any(&(0..9)));
    }
}
