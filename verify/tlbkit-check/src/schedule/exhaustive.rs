//! Every schedule with at most a given number of deviations.
//!
//! A deviation is a choice other than the first while the CPU that executes could go on. When it cannot, all choices
//! are tried and none counts. A run is repeated from its beginning with one choice changed, the last that has another
//! alternative. Two things are not tried again, since they lead nowhere else:
//!
//! - **A state met before** with as many deviations left. Steps of two CPUs that do not touch each other lead to the
//!   same state in either order, so only one order is followed from there. `machine/state.rs` says what a state is.
//! - **Waiting.** What a CPU does next is decided by all that it has read, which is part of the state; but a
//!   round of waiting in which it only looked leaves no trace (`Core::spin`). That is sound because no loop that waits
//!   keeps anything of such a round: the locks' and the idle loop keep nothing at all; the wait for answers counts its
//!   rounds only until patience ends, and here it ends with each; and whatever ends a loop is more than a look (a
//!   locked access, a call's end), so that no two places in the code are taken for one. Without this a state would
//!   depend on how often each CPU had looked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::Chooser;
use crate::machine::action::{Action, Turn};

/// One choice of the run.
#[derive(Clone, Copy, Debug)]
struct Branch {
    chosen: u8,
    /// Choices there are.
    of: u8,
    /// Deviations left before it.
    left: u8,
    other: Other,
}

/// What choosing another than the first is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Other {
    Free,
    Deviation,
}

/// Where the exploration stands.
#[derive(Debug)]
pub(crate) struct Exhaustive {
    branches: Vec<Branch>,
    /// Branches of this run so far.
    depth: usize,
    left: u8,
    /// The most deviations that were left at each state met.
    seen: HashMap<u64, u8>,
    is_known: bool,
    bound: u8,
    pub(crate) runs: u64,
}

impl Exhaustive {
    pub(crate) fn new(bound: u8) -> Self {
        Self { branches: Vec::new(), depth: 0, left: bound, seen: HashMap::new(), is_known: false, bound, runs: 0 }
    }

    /// Distinct states met.
    pub(crate) fn states(&self) -> usize {
        self.seen.len()
    }

    /// Goes to the next run; false if all were made.
    pub(crate) fn advance(&mut self) -> bool {
        self.runs += 1;
        self.branches.truncate(self.depth);
        (self.depth, self.left, self.is_known) = (0, self.bound, false);
        while let Some(branch) = self.branches.last_mut() {
            let may_deviate = branch.other == Other::Free || branch.left > 0;
            if may_deviate && branch.chosen + 1 < branch.of {
                branch.chosen += 1;
                return true;
            }
            self.branches.pop();
        }
        false
    }

    fn take(&mut self, of: usize, other: Other) -> usize {
        if self.depth == self.branches.len() {
            self.branches.push(Branch { chosen: 0, of: of as u8, left: self.left, other });
        }
        let branch = self.branches[self.depth];
        debug_assert_eq!(usize::from(branch.of), of, "a run repeats itself");
        self.depth += 1;
        if branch.chosen > 0 && other == Other::Deviation {
            self.left -= 1;
        }
        usize::from(branch.chosen)
    }

    fn decide(&mut self, actions: &[Action], turn: Turn, state: u64) -> usize {
        if self.is_on_new_ground() {
            match self.seen.get(&state) {
                Some(&left) if left >= self.left => {
                    self.is_known = true;
                    return 0;
                }
                _ => self.seen.insert(state, self.left),
            };
        }
        self.take(actions.len(), if turn == Turn::Blocked { Other::Free } else { Other::Deviation })
    }

    const fn is_on_new_ground(&self) -> bool {
        self.depth >= self.branches.len()
    }
}

/// The exploration outlives each of its runs.
impl Chooser for Rc<RefCell<Exhaustive>> {
    fn choose(&mut self, actions: &[Action], turn: Turn, state: u64) -> usize {
        self.borrow_mut().decide(actions, turn, state)
    }

    fn outcome(&mut self, n: usize) -> usize {
        let mut exploration = self.borrow_mut();
        if exploration.is_known { 0 } else { exploration.take(n, Other::Free) }
    }

    fn records_states(&self) -> bool {
        true
    }

    fn wants_state(&self) -> bool {
        self.borrow().is_on_new_ground()
    }

    fn has_given_up(&self) -> bool {
        self.borrow().is_known
    }
}
