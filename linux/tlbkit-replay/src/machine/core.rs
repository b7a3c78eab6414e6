//! One replayed CPU: what runs on it, what its TLB may hold of each space, and what it has executed of the current
//! flush.

use super::held::{Drop, Due, Held};
use crate::bill::{CostItem, Counts};
use crate::op::Party;
use crate::tally::Bounds;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use tlbkit::{Cr3, IrqsOff, Pcid, PhysAddr};

/// The distance in bytes between the tables of kernel half and user half of a space under isolation.
const HALF: u64 = 0x1000;

/// The address of the kernel half's tables of the space that `cr3` loads. It stands for the space.
pub(super) const fn root_of(cr3: Cr3) -> u64 {
    cr3.root().0 & !HALF
}

/// One replayed CPU.
pub(super) struct Core {
    cr3: Cell<Cr3>,
    /// For how long the loaded space has run since [`Held::run`] was last told, in nanoseconds.
    running_ns: Cell<u64>,
    /// What the TLB may hold of the loaded space, and of the others.
    loaded: RefCell<Held>,
    others: RefCell<FxHashMap<u64, Held>>,
    /// The space of each tag, by the address of its tables.
    tags: RefCell<BTreeMap<Pcid, u64>>,
    /// What this CPU has executed so far of the flush that it has begun.
    work: RefCell<Work>,
    /// Whether it has executed anything of a flush. Kept because most operations are no flush.
    has_worked: Cell<bool>,
    /// Whether a program runs, and not the idle thread or a thread of the kernel.
    pub(super) is_busy: Cell<bool>,
    /// Whether the caller asks about the thread that runs.
    pub(super) party: Cell<Party>,
    /// Whether it takes no interrupt now.
    are_irqs_off: Cell<bool>,
    /// Whether the CPU is in user mode.
    pub(super) is_user: Cell<bool>,
    /// Whether the CPU is on the way from user mode into the kernel, or back.
    pub(super) is_crossing: Cell<bool>,
    seen_ns: Cell<u64>,
    /// For how long programs ran, and those of them that the caller asks about, in nanoseconds.
    pub(super) busy_ns: Cell<u64>,
    pub(super) asked_busy_ns: Cell<u64>,
}

/// What one CPU has executed for one flush.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) items: Counts,
    pub(super) was_current: bool,
    pub(super) was_wrong_space: bool,
    /// Whether the CPU is in the CPU set of the space, and has asked the others in it.
    pub(super) has_asked: bool,
    /// Whether this CPU certainly held what was revoked.
    pub(super) has_held: bool,
}

impl Work {
    pub(super) const fn count(&self, item: CostItem) -> u64 {
        self.items[item as usize]
    }

    pub(super) const fn pages(&self) -> u64 {
        self.count(CostItem::Page)
    }

    pub(super) const fn was_flushed(&self) -> bool {
        self.count(CostItem::Flush) + self.count(CostItem::Everything) > 0
    }
}

impl Default for Core {
    fn default() -> Self {
        Self {
            cr3: Cell::new(Cr3::flushing(PhysAddr(0), Pcid::KERNEL)),
            running_ns: Cell::new(0),
            loaded: RefCell::default(),
            others: RefCell::default(),
            tags: RefCell::default(),
            work: RefCell::default(),
            has_worked: Cell::new(false),
            is_busy: Cell::new(false),
            party: Cell::new(Party::Asked),
            are_irqs_off: Cell::new(false),
            is_user: Cell::new(false),
            is_crossing: Cell::new(false),
            seen_ns: Cell::new(0),
            busy_ns: Cell::new(0),
            asked_busy_ns: Cell::new(0),
        }
    }
}

impl Core {
    /// Does `act` with interrupts off.
    pub(super) fn with_irqs_off<R>(&self, act: impl FnOnce(&IrqsOff) -> R) -> R {
        let before = self.are_irqs_off.replace(true);
        let done = act(&IrqsOff::assume());
        self.are_irqs_off.set(before);
        done
    }

    /// Whether it takes interrupts now.
    pub(super) fn are_irqs_on(&self) -> bool {
        !self.are_irqs_off.get()
    }

    /// Brings the CPU's time up to `now_ns`.
    pub(super) fn pass(&self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.seen_ns.replace(now_ns));
        if !self.is_busy.get() {
            return;
        }
        self.running_ns.set(self.running_ns.get() + passed_ns);
        self.busy_ns.set(self.busy_ns.get().saturating_add(passed_ns));
        if self.party.get() == Party::Asked {
            self.asked_busy_ns.set(self.asked_busy_ns.get().saturating_add(passed_ns));
        }
    }

    /// The space that is loaded, by the address of its tables.
    pub(super) fn root(&self) -> u64 {
        root_of(self.cr3.get())
    }

    /// Loads the space of `cr3`, which may be loaded already.
    pub(super) fn load(&self, cr3: Cr3) {
        self.note_time();
        let (before, after) = (self.root(), root_of(cr3));
        self.cr3.set(cr3);
        if before == after {
            return;
        }
        let mut others = self.others.borrow_mut();
        let held = others.remove(&after).unwrap_or_default();
        let left = self.loaded.replace(held);
        // Of most spaces that end nothing is held, and they do not come back. So what says nothing is not kept.
        if !left.is_nothing() {
            others.insert(before, left);
        }
    }

    /// Tells what is held of the loaded space for how long the space has run.
    fn note_time(&self) {
        self.loaded.borrow_mut().run(self.running_ns.take());
    }

    /// A page fault has filled an entry of the loaded space.
    pub(super) fn touch(&self, page: u64) {
        self.loaded.borrow_mut().touch(page);
    }

    /// Whether this CPU certainly holds an entry of the loaded space for any of `pages`.
    pub(super) fn has_any(&self, pages: &Range<u64>) -> bool {
        self.loaded.borrow().has_any(pages)
    }

    /// Drops one entry of the loaded space that was revoked, so that it does not count as lost.
    pub(super) fn drop_page(&self, page: u64) {
        self.loaded.borrow_mut().drop_page(page);
    }

    /// From now on the tag in `cr3` belongs to the space in `cr3`. Returns the space that it belonged to before.
    pub(super) fn name(&self, cr3: Cr3) -> Option<u64> {
        self.tags.borrow_mut().insert(cr3.pcid(), root_of(cr3))
    }

    /// All spaces that have a tag on this CPU, each once.
    pub(super) fn named(&self) -> Vec<u64> {
        let mut roots: Vec<u64> = self.tags.borrow().values().copied().collect();
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    /// Drops all entries of the space `root`. Returns what was lost, and what had been walked for again before; none if
    /// this CPU holds nothing of the space.
    pub(super) fn empty(&self, root: u64, drop: &Drop<'_>) -> Option<(Bounds, Due)> {
        self.note_time();
        if root == self.root() {
            return Some(self.loaded.borrow_mut().empty(drop));
        }
        let mut others = self.others.borrow_mut();
        let held = others.get_mut(&root)?;
        let emptied = held.empty(drop);
        if held.is_nothing() {
            others.remove(&root);
        }
        Some(emptied)
    }

    /// The replay ends. Tells what has been walked for again since each space was emptied last.
    pub(super) fn settle(&self, walks_per_ns: f64, mut tell: impl FnMut(Due)) {
        self.note_time();
        tell(self.loaded.borrow().due(walks_per_ns));
        self.others.borrow().values().for_each(|held| tell(held.due(walks_per_ns)));
    }

    pub(super) fn change_work(&self, change: impl FnOnce(&mut Work)) {
        self.has_worked.set(true);
        change(&mut self.work.borrow_mut());
    }

    /// Whether anything was executed since [`Core::take_work`] was called last.
    pub(super) fn has_worked(&self) -> bool {
        self.has_worked.get()
    }

    /// What was executed since the last call. None if nothing was.
    pub(super) fn take_work(&self) -> Option<Work> {
        self.has_worked.take().then(|| self.work.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_fill() {
        let core = Core::default();
        core.pass(50);
        core.is_busy.set(true);
        core.pass(80);
        assert_eq!((core.running_ns.get(), core.busy_ns.get(), core.asked_busy_ns.get()), (30, 30, 30));
    }
}
