//! What one CPU holds, as far as faults tell, and for how long it has been filling.

use rustc_hash::FxHashSet;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use tlbkit::{Cr3, Pcid, PhysAddr};

/// Under one tag.
#[derive(Default)]
pub(super) struct Held {
    /// Pages whose fault filled an entry that nothing has dropped.
    pages: FxHashSet<u64>,
    /// When the tag was empty last.
    empty_since_ns: u64,
}

/// One CPU.
pub(super) struct Core {
    pub(super) cr3: Cell<Cr3>,
    held: RefCell<BTreeMap<Pcid, Held>>,
    /// The flush that this CPU has begun: what it has executed of it so far.
    pub(super) work: Cell<Work>,
}

/// What one CPU has executed for one flush.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) invlpg: u64,
    pub(super) was_flushed: bool,
    pub(super) was_current: bool,
    pub(super) was_wrong_space: bool,
    /// CR3 was written, and nothing flushed.
    pub(super) was_kept: bool,
    pub(super) cycles: f64,
}

impl Default for Core {
    fn default() -> Self {
        let cr3 = Cell::new(Cr3::flushing(PhysAddr(0), Pcid::KERNEL));
        Self { cr3, held: RefCell::default(), work: Cell::default() }
    }
}

impl Core {
    /// A fault has filled an entry of the loaded tag.
    pub(super) fn touch(&self, page: u64) {
        self.held.borrow_mut().entry(self.cr3.get().pcid()).or_default().pages.insert(page);
    }

    /// Drops one entry; true if it was there for certain.
    pub(super) fn drop_page(&self, page: u64) -> bool {
        self.held.borrow_mut().get_mut(&self.cr3.get().pcid()).is_some_and(|held| held.pages.remove(&page))
    }

    /// Drops a tag: how many entries were there for certain, and for how long it may have been filled.
    pub(super) fn drop_tag(&self, pcid: Pcid, now_ns: u64) -> (u64, u64) {
        let mut tags = self.held.borrow_mut();
        let held = tags.entry(pcid).or_default();
        let entries = held.pages.len() as u64;
        held.pages.clear();
        (entries, now_ns - std::mem::replace(&mut held.empty_since_ns, now_ns).min(now_ns))
    }

    /// Drops every tag.
    pub(super) fn drop_all(&self, now_ns: u64) -> (u64, u64) {
        let tags: Vec<Pcid> = self.held.borrow().keys().copied().collect();
        tags.into_iter().map(|tag| self.drop_tag(tag, now_ns)).fold((0, 0), |a, b| (a.0 + b.0, a.1.max(b.1)))
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut Work)) {
        let mut work = self.work.get();
        change(&mut work);
        self.work.set(work);
    }
}
