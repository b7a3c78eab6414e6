//! Page faults that bring back what a call gave back, and what a fault takes.

use super::mapping::Mapping;
use rustc_hash::FxHashMap;

/// The most calls of a process whose pages may still come back. Of more, the oldest are forgotten.
const MAX_CALLS: usize = 64;
/// The most processes that are followed. If there are more, all are forgotten.
const MAX_PROCESSES: usize = 1 << 16;

/// The width of a step of the histogram of gaps, in nanoseconds, and how many steps it has.
const STEP_NS: u64 = 25;
const STEPS: usize = 1024;
/// Of fewer gaps nothing is said.
const FEWEST_GAPS: u64 = 200;

/// Pages that a call gave back.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenBack {
    /// The row in which its flush was counted.
    pub(super) row: usize,
    pub(super) mapping: Mapping,
    pub(super) pages: u64,
}

/// Which calls gave pages back that have not come again. A fault in memory of the same kind is counted for the last of
/// them: a program that unmaps and maps again may get another address.
#[derive(Default)]
pub(super) struct Refaults {
    given: FxHashMap<i32, Vec<GivenBack>>,
    gaps: Vec<u64>,
}

impl Refaults {
    /// A call of the process has given pages back.
    pub(super) fn gave_back(&mut self, pid: i32, back: GivenBack) {
        if back.pages == 0 {
            return;
        }
        if self.given.len() >= MAX_PROCESSES {
            self.given.clear();
        }
        let given = self.given.entry(pid).or_default();
        match given.iter_mut().find(|before| (before.row, before.mapping) == (back.row, back.mapping)) {
            Some(before) => before.pages += back.pages,
            None => {
                if given.len() >= MAX_CALLS {
                    given.remove(0);
                }
                given.push(back);
            }
        }
    }

    /// A page of this kind of memory is brought in. Returns the row of the call that gave one back, if one did.
    pub(super) fn take(&mut self, pid: i32, mapping: Mapping) -> Option<usize> {
        let given = self.given.get_mut(&pid)?;
        let at = given.iter().rposition(|back| back.mapping == mapping)?;
        let row = given[at].row;
        given[at].pages -= 1;
        if given[at].pages == 0 {
            given.remove(at);
        }
        Some(row)
    }

    /// A thread has used so much CPU time between two faults.
    pub(super) fn gap(&mut self, gap_ns: u64) {
        self.gaps.resize(STEPS, 0);
        if let Some(count) = self.gaps.get_mut((gap_ns / STEP_NS) as usize) {
            *count += 1;
        }
    }

    /// The tenth of the gaps that is shortest ends here, in nanoseconds.
    pub(super) fn shortest_ns(&self) -> Option<u64> {
        let all: u64 = self.gaps.iter().sum();
        let mut below = 0;
        let step = self.gaps.iter().position(|count| {
            below += count;
            10 * below >= all
        })?;
        (all >= FEWEST_GAPS).then(|| (step as u64 + 1) * STEP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_for_the_last_call_that_gave_one_of_its_kind() {
        let mut refaults = Refaults::default();
        let back = |row, mapping, pages| GivenBack { row, mapping, pages };
        refaults.gave_back(7, back(1, Mapping::Anonymous, 2));
        refaults.gave_back(7, back(2, Mapping::Anonymous, 1));
        refaults.gave_back(7, back(3, Mapping::Heap, 1));
        let taken: Vec<_> = (0..4).map(|_| refaults.take(7, Mapping::Anonymous)).collect();
        assert_eq!(taken, [Some(2), Some(1), Some(1), None]);
        assert_eq!((refaults.take(7, Mapping::Heap), refaults.take(8, Mapping::Heap)), (Some(3), None));
    }

    #[test]
    fn what_a_fault_takes_is_told_by_the_shortest_gaps() {
        let mut refaults = Refaults::default();
        (0..199).for_each(|_| refaults.gap(1000));
        assert_eq!(refaults.shortest_ns(), None, "too few");
        (0..30).for_each(|_| refaults.gap(400));
        (0..30).for_each(|_| refaults.gap(u64::MAX));
        assert_eq!(refaults.shortest_ns(), Some(425));
    }
}
