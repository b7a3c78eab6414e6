//! What one CPU may hold of each space. It is deduced from the faults and from how long the space has run there.

use super::page_set::PageSet;
use crate::op::{Party, Who};
use crate::tally::Bounds;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use tlbkit::{Cr3, Pcid, PhysAddr};

/// The halves of a space under isolation lie one page apart.
const HALF: u64 = 0x1000;

/// A space, by the root of its kernel half.
pub(super) const fn root_of(cr3: Cr3) -> u64 {
    cr3.root().0 & !HALF
}

/// What the CPU may hold of one space.
#[derive(Default)]
struct Held {
    /// Pages whose fault filled an entry that nothing has dropped.
    pages: PageSet,
    /// For how long the space has run since it held nothing.
    ran_ns: u64,
    /// Entries that may have to be walked for again, and who dropped them.
    debt: u64,
    debtor: Option<Who>,
}

/// Entries that somebody dropped and that were walked for again.
pub(super) struct Due {
    pub(super) walks: u64,
    pub(super) debtor: Option<Who>,
}

impl Held {
    /// What was walked for again since the last time, if it can have been: no more than the time allowed.
    fn settle(&self, walks_per_ns: f64) -> Due {
        let could = (self.ran_ns as f64 * walks_per_ns) as u64;
        Due { walks: self.debt.min(could), debtor: self.debtor }
    }

    /// Whether it is as if the space had never been here.
    fn is_nothing(&self) -> bool {
        self.pages.is_empty() && self.ran_ns == 0 && self.debt == 0
    }

    /// Drops everything; `most` entries can have been there and true.
    fn empty(&mut self, most: u64, revoked: &Range<u64>, walks_per_ns: f64, who: Option<Who>) -> (Bounds, Due) {
        let due = self.settle(walks_per_ns);
        let could = (self.ran_ns as f64 * walks_per_ns) as u64;
        let known = self.pages.count_outside(revoked);
        let lost = Bounds { low: known.min(most), high: most.min(could).max(known.min(most)) };
        // What was not walked for yet is still wanted.
        self.debt = (lost.high + self.debt - due.walks).min(most);
        self.debtor = who;
        self.pages.clear();
        self.ran_ns = 0;
        (lost, due)
    }
}

/// One CPU.
pub(super) struct Core {
    cr3: Cell<Cr3>,
    /// For how long the loaded space has run since `held` was told.
    running_ns: Cell<u64>,
    held: RefCell<FxHashMap<u64, Held>>,
    /// Which space each tag names.
    tags: RefCell<BTreeMap<Pcid, u64>>,
    /// The flush that this CPU has begun: what it has executed of it so far.
    work: RefCell<Work>,
    /// Whether it has executed anything of it: mostly a step is no flush.
    has_worked: Cell<bool>,
    /// A program runs, rather than the idle thread or a thread of the kernel.
    pub(super) is_busy: Cell<bool>,
    /// Whether the reader asks about the thread that runs.
    pub(super) party: Cell<Party>,
    /// It is in user mode.
    pub(super) is_user: Cell<bool>,
    /// It is on the way from user mode into the kernel, or back.
    pub(super) is_crossing: Cell<bool>,
    seen_ns: Cell<u64>,
}

/// What one CPU has executed for one flush.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) items: crate::bill::Counts,
    pub(super) was_current: bool,
    pub(super) was_wrong_space: bool,
    /// It is in the set, and asked the others there.
    pub(super) has_asked: bool,
    /// What was revoked was here for certain.
    pub(super) was_held: bool,
}

impl Default for Core {
    fn default() -> Self {
        Self {
            cr3: Cell::new(Cr3::flushing(PhysAddr(0), Pcid::KERNEL)),
            running_ns: Cell::new(0),
            held: RefCell::default(),
            tags: RefCell::default(),
            work: RefCell::default(),
            has_worked: Cell::new(false),
            is_busy: Cell::new(false),
            party: Cell::new(Party::Asked),
            is_user: Cell::new(false),
            is_crossing: Cell::new(false),
            seen_ns: Cell::new(0),
        }
    }
}

impl Core {
    /// Time goes on; how much of it the loaded space ran.
    pub(super) fn pass(&self, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.seen_ns.replace(now_ns));
        if !self.is_busy.get() {
            return 0;
        }
        self.running_ns.set(self.running_ns.get() + passed_ns);
        passed_ns
    }

    /// The space that is loaded, by the root of its kernel half.
    pub(super) fn root(&self) -> u64 {
        root_of(self.cr3.get())
    }

    /// Loads another space, or the same again.
    pub(super) fn load(&self, cr3: Cr3) {
        self.note_time();
        self.cr3.set(cr3);
    }

    /// The loaded space is told for how long it has run.
    fn note_time(&self) {
        let running_ns = self.running_ns.take();
        if running_ns > 0 {
            self.held.borrow_mut().entry(self.root()).or_default().ran_ns += running_ns;
        }
    }

    /// A fault has filled an entry of the loaded space.
    pub(super) fn touch(&self, page: u64) {
        self.held.borrow_mut().entry(self.root()).or_default().pages.insert(page);
    }

    /// Whether an entry of the loaded space for any of `pages` is here for certain.
    pub(super) fn holds(&self, pages: &Range<u64>) -> bool {
        let held = self.held.borrow();
        let Some(held) = held.get(&self.root()) else { return false };
        held.pages.meets(pages)
    }

    /// Drops one entry of the loaded space: it was revoked, so nobody misses it.
    pub(super) fn drop_page(&self, page: u64) {
        if let Some(held) = self.held.borrow_mut().get_mut(&self.root()) {
            held.pages.remove(page);
        }
    }

    /// The tag names this space from here on; what it named before.
    pub(super) fn name(&self, cr3: Cr3) -> Option<u64> {
        self.tags.borrow_mut().insert(cr3.pcid(), root_of(cr3))
    }

    /// All spaces that a tag names, each once.
    pub(super) fn named(&self) -> Vec<u64> {
        let mut roots: Vec<u64> = self.tags.borrow().values().copied().collect();
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    /// Drops all of one space.
    pub(super) fn empty(
        &self,
        root: u64,
        most: u64,
        revoked: &Range<u64>,
        walks_per_ns: f64,
        who: Option<Who>,
    ) -> (Bounds, Due) {
        self.note_time();
        let mut all = self.held.borrow_mut();
        let Some(held) = all.get_mut(&root) else {
            // As much as one who holds nothing.
            return Held::default().empty(most, revoked, walks_per_ns, who);
        };
        let outcome = held.empty(most, revoked, walks_per_ns, who);
        // Most spaces end empty, and none comes back.
        if held.is_nothing() {
            all.remove(&root);
        }
        outcome
    }

    /// The end: what was walked for again since each space was emptied last.
    pub(super) fn settle(&self, walks_per_ns: f64) -> Vec<Due> {
        self.note_time();
        self.held.borrow().values().map(|held| held.settle(walks_per_ns)).collect()
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut Work)) {
        self.has_worked.set(true);
        change(&mut self.work.borrow_mut());
    }

    /// What was executed since the last time; none if nothing was.
    pub(super) fn take_work(&self) -> Option<Work> {
        self.has_worked.take().then(|| self.work.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Range<u64> = 0..0;

    #[test]
    fn refills_fit_into_the_time_before_and_after() {
        let mut held = Held { ran_ns: 100, ..Held::default() };
        let (lost, due) = held.empty(1000, &NOTHING, 0.5, None);
        assert_eq!((lost, due.walks), (Bounds { low: 0, high: 50 }, 0));
        held.ran_ns = 20;
        let (lost, due) = held.empty(1000, &NOTHING, 0.5, None);
        assert_eq!((lost, due.walks), (Bounds { low: 0, high: 10 }, 10));
        held.ran_ns = 1000;
        assert_eq!(held.settle(0.5).walks, 50, "40 left from the first time, 10 from the second");
    }

    #[test]
    fn what_was_revoked_is_not_lost() {
        let mut held = Held { ran_ns: 1000, ..Held::default() };
        [1, 2, 7].into_iter().for_each(|page| held.pages.insert(page));
        let (lost, _) = held.empty(2, &(1..3), 1.0, None);
        assert_eq!(lost, Bounds { low: 1, high: 2 });
    }

    #[test]
    fn only_programs_fill() {
        let core = Core::default();
        assert_eq!((core.pass(50), core.is_busy.replace(true), core.pass(80)), (0, false, 30));
    }
}
