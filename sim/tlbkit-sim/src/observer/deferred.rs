//! Two more judges of an interrupt that was needed when it was sent: how long could it have waited?
//!
//! A CPU that is told to drop an entry need not be told at once. Until its program next uses an address of the range
//! nobody sees that the entry is old, unless a frame behind the range has been given to somebody else before. So each
//! needed interrupt leaves a *debt*, and it is noted which comes first: the next use, the reuse of a frame, or a flush
//! that the CPU makes anyway, by which the debt is paid for nothing. Only changes of one space's range are followed: of
//! the kernel's addresses and of whole spaces nothing is said. A change that frees nothing has no frame to be reused;
//! where it takes rights away, the next use is what decides.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use tlbkit::PhysAddr;

use super::freed::FreedFrames;

/// Debts of one CPU that are followed; the oldest is forgotten for the next.
const MOST_DEBTS: usize = 32;

/// How many interrupts were needed by two later moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LaterNeeds {
    /// Interrupts whose debts were followed: needed when they were sent, for a range of one space.
    pub followed: u64,
    /// Of those, interrupts whose CPU used an address of the range before it flushed by itself.
    pub before_use: u64,
    /// Of those, interrupts of which a frame was allocated again before the CPU flushed by itself.
    pub before_reuse: u64,
}

#[derive(Clone, Copy, Debug)]
struct Debt {
    operation: u64,
    root: PhysAddr,
    va: u64,
    end: u64,
    is_used: bool,
    is_reused: bool,
}

/// The debts of all CPUs.
pub(super) struct Debts {
    of_cpu: Vec<OfCpu>,
    /// By operation: the CPU of each debt that it left. Of most operations nobody has any, and there are many CPUs.
    debtors: RefCell<BTreeMap<u64, Vec<usize>>>,
    frames: RefCell<FreedFrames>,
    needs: Cell<LaterNeeds>,
}

#[derive(Default)]
struct OfCpu {
    has_any: Cell<bool>,
    debts: RefCell<VecDeque<Debt>>,
}

impl Debts {
    pub(super) fn new(cpus: usize) -> Self {
        let of_cpu = (0..cpus).map(|_| OfCpu::default()).collect();
        Self { of_cpu, debtors: RefCell::default(), frames: RefCell::default(), needs: Cell::default() }
    }

    /// `to` was told of `pages` pages from `va` of the space at `root`, and had to be.
    pub(super) fn record_needed(&self, to: usize, operation: u64, root: PhysAddr, (va, pages): (u64, u64)) {
        let of_cpu = &self.of_cpu[to];
        let mut debts = of_cpu.debts.borrow_mut();
        if debts.len() == MOST_DEBTS
            && let Some(oldest) = debts.pop_front()
        {
            self.forget(to, &oldest);
        }
        let end = va.saturating_add(pages.saturating_mul(tlbkit::PAGE_BYTES));
        debts.push_back(Debt { operation, root, va, end, is_used: false, is_reused: false });
        of_cpu.has_any.set(true);
        self.debtors.borrow_mut().entry(operation).or_default().push(to);
        self.count(|needs| needs.followed += 1);
    }

    /// Whether `cpu` has any.
    #[inline]
    pub(super) fn has_any(&self, cpu: usize) -> bool {
        self.of_cpu[cpu].has_any.get()
    }

    /// `cpu` accesses `va` of the space at `root`.
    #[inline(never)]
    pub(super) fn used(&self, cpu: usize, root: PhysAddr, va: u64) {
        for debt in self.of_cpu[cpu].debts.borrow_mut().iter_mut() {
            if debt.root == root && (debt.va..debt.end).contains(&va) && !debt.is_used {
                debt.is_used = true;
                self.count(|needs| needs.before_use += 1);
            }
        }
    }

    /// `cpu` flushed all that it held of some space for a reason of its own.
    pub(super) fn flushed(&self, cpu: usize) {
        self.of_cpu[cpu].debts.borrow_mut().drain(..).for_each(|debt| self.forget(cpu, &debt));
        self.of_cpu[cpu].has_any.set(false);
    }

    /// `cpu` does not have the debt any more.
    fn forget(&self, cpu: usize, debt: &Debt) {
        let mut debtors = self.debtors.borrow_mut();
        let Some(cpus) = debtors.get_mut(&debt.operation) else { return };
        if let Some(place) = cpus.iter().position(|&debtor| debtor == cpu) {
            cpus.swap_remove(place);
        }
        if cpus.is_empty() {
            debtors.remove(&debt.operation);
        }
    }

    /// The frame at `at` was freed by an operation.
    pub(super) fn freed(&self, operation: u64, at: PhysAddr) {
        self.frames.borrow_mut().freed(operation, at);
    }

    /// The frame at `at` was allocated.
    pub(super) fn allocated(&self, at: PhysAddr) {
        let Some(operation) = self.frames.borrow_mut().take(at) else { return };
        let debtors = self.debtors.borrow();
        for &cpu in debtors.get(&operation).into_iter().flatten() {
            for debt in self.of_cpu[cpu].debts.borrow_mut().iter_mut() {
                if debt.operation == operation && !debt.is_reused {
                    debt.is_reused = true;
                    self.count(|needs| needs.before_reuse += 1);
                }
            }
        }
    }

    pub(super) fn needs(&self) -> LaterNeeds {
        self.needs.get()
    }

    fn count(&self, count: impl FnOnce(&mut LaterNeeds)) {
        let mut needs = self.needs.get();
        count(&mut needs);
        self.needs.set(needs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: PhysAddr = PhysAddr(0x1000);
    const FRAME: PhysAddr = PhysAddr(0x7000);

    fn debts() -> Debts {
        let debts = Debts::new(2);
        debts.record_needed(1, 5, ROOT, (0x4000, 2));
        debts.freed(5, FRAME);
        debts
    }

    #[test]
    fn the_next_use_counts_once_and_only_in_the_range_of_that_space() {
        let debts = debts();
        debts.used(1, ROOT, 0x6000);
        debts.used(1, PhysAddr(0x2000), 0x4000);
        debts.used(0, ROOT, 0x4000);
        assert_eq!(debts.needs(), LaterNeeds { followed: 1, before_use: 0, before_reuse: 0 });
        debts.used(1, ROOT, 0x5fff);
        debts.used(1, ROOT, 0x4000);
        assert_eq!(debts.needs(), LaterNeeds { followed: 1, before_use: 1, before_reuse: 0 });
    }

    #[test]
    fn frames_that_come_back_count_once() {
        let debts = debts();
        debts.allocated(PhysAddr(0x8000));
        assert_eq!(debts.needs().before_reuse, 0);
        debts.freed(5, PhysAddr(0x9000));
        for frame in [FRAME, FRAME, PhysAddr(0x9000)] {
            debts.allocated(frame);
        }
        assert_eq!(debts.needs().before_reuse, 1, "one interrupt, of which two frames came back");
    }

    /// Who has a debt is known by the operation, so one that is forgotten must be forgotten there too.
    #[test]
    fn a_debt_that_is_forgotten_or_paid_leaves_nothing_behind() {
        let debts = debts();
        debts.record_needed(0, 5, ROOT, (0x4000, 2));
        (6..6 + MOST_DEBTS as u64).for_each(|operation| debts.record_needed(1, operation, ROOT, (0x4000, 2)));
        debts.allocated(FRAME);
        assert_eq!(debts.needs().before_reuse, 1, "the other CPU's");
        assert_eq!(debts.debtors.borrow().len(), 1 + MOST_DEBTS);
        [0, 1].iter().for_each(|&cpu| debts.flushed(cpu));
        assert!(debts.debtors.borrow().is_empty());
    }

    #[test]
    fn a_flush_of_the_cpu_s_own_pays_for_nothing() {
        let debts = debts();
        debts.flushed(1);
        debts.used(1, ROOT, 0x4000);
        debts.allocated(FRAME);
        assert_eq!(debts.needs(), LaterNeeds { followed: 1, before_use: 0, before_reuse: 0 });
    }
}
