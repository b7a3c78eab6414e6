//! What each idea could save at most: how many of the flush interrupts that were sent it would still send, and what it
//! takes in return.
//!
//! Each is counted alone, at the moment of sending, in a run that does nothing of the kind. So these are bounds: a
//! design that is built may gain less, and two of them together do not gain the sum.

use std::collections::BTreeMap;
use std::mem;

use serde::{Deserialize, Serialize};

/// Of the flush interrupts that were sent, those that each idea would still send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bounds {
    /// Private tables above 2 MiB, 1 GiB, 512 GiB: to CPUs that have walked to a page of the region.
    pub regions: [u64; 3],
    /// Faults that they add.
    pub region_faults: [u64; 3],
    /// The same if each thread's mappings had regions of their own.
    pub regions_apart: [u64; 3],
    /// Faults that they add then.
    pub region_apart_faults: [u64; 3],
    /// Each page knows its CPUs: to those that have walked to a page since it was mapped.
    pub pages: u64,
    /// Never accessed, never cached: some entry had its accessed bit set, or a table was taken out.
    pub accessed: u64,
    /// Left to a grace period: for pages or addresses that the program keeps.
    pub kept: u64,
    /// Pages taken from the program times cycles, until each CPU that was told had entered or left the kernel.
    pub crossing_page_cycles: u64,
    /// The same until each of them had ticked or switched.
    pub tick_page_cycles: u64,
    /// The most pages that wait for a tick or switch at a time.
    pub tick_pages_most: u64,
    /// Cycles of waiting that end earlier if a responder acknowledges before it flushes.
    pub early_cycles: u64,
}

/// When a CPU has certainly flushed what was left to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// It enters or leaves the kernel.
    Crossing,
    /// It ticks, or switches.
    Tick,
}

/// Pages that wait until all CPUs of a flush have passed a moment.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: u64,
    pages: u64,
    /// CPUs that have not passed it, and the flush itself until it has told all of them.
    left: u32,
}

/// What would wait, were flushes left to the moments at which CPUs pass by themselves.
#[derive(Debug)]
pub(super) struct Graces {
    held: BTreeMap<u64, Held>,
    next: u64,
    /// The flushes that each CPU has not passed yet.
    owed: Vec<Vec<u64>>,
    pub(super) page_cycles: u64,
    pages: u64,
    pub(super) pages_most: u64,
}

impl Graces {
    pub(super) fn new(cpus: usize) -> Self {
        Self { held: BTreeMap::new(), next: 0, owed: vec![Vec::new(); cpus], page_cycles: 0, pages: 0, pages_most: 0 }
    }

    /// A flush of so many pages begins to tell CPUs. Returns its number.
    pub(super) fn begin(&mut self, pages: u64, now: u64) -> u64 {
        self.next += 1;
        self.held.insert(self.next, Held { since: now, pages, left: 1 });
        self.pages += pages;
        self.pages_most = self.pages_most.max(self.pages);
        self.next
    }

    /// The flush is left to this CPU.
    pub(super) fn leave_to(&mut self, cpu: usize, flush: u64) {
        self.owed[cpu].push(flush);
        self.held.get_mut(&flush).expect("a flush that was begun").left += 1;
    }

    /// The CPU passes.
    pub(super) fn pass(&mut self, cpu: usize, now: u64) {
        for flush in mem::take(&mut self.owed[cpu]) {
            self.settle(flush, now);
        }
    }

    /// One less waits for the flush: a CPU has passed, or all of them have been told.
    pub(super) fn settle(&mut self, flush: u64, now: u64) {
        let held = self.held.get_mut(&flush).expect("a flush that somebody owes");
        held.left -= 1;
        if held.left == 0 {
            let Held { since, pages, .. } = *held;
            self.held.remove(&flush);
            self.pages -= pages;
            self.page_cycles += pages * now.saturating_sub(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_wait_for_the_last_cpu() {
        let mut graces = Graces::new(3);
        let first = graces.begin(10, 100);
        graces.leave_to(1, first);
        graces.leave_to(2, first);
        graces.settle(first, 110);
        let second = graces.begin(1, 150);
        graces.leave_to(1, second);
        graces.settle(second, 160);
        graces.pass(1, 200);
        assert_eq!((graces.page_cycles, graces.pages_most), (50, 11), "the second is over, the first waits for CPU 2");
        graces.pass(1, 250);
        graces.pass(2, 300);
        assert_eq!(graces.page_cycles, 50 + 10 * 200);
    }
}
