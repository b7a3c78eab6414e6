//! What the little kernel remembers of its tasks and spaces.

use std::cell::{Cell, RefCell};

use tlbkit_pmap::KernelWindow;

use super::Program;
use crate::digest::mix;

/// Spaces that one run can have.
pub(crate) const SPACES: usize = 6;

/// How far a space has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It has not begun.
    NotYet,
    /// It was destroyed, and a CPU may hold it.
    Awaited,
    /// The protocol has said that it can be freed.
    Told,
}

/// What the kernel knows of its tasks and spaces.
pub(crate) struct Kernel {
    pub(super) program: Program,
    /// The space whose task each CPU runs.
    runs: Vec<Cell<Option<usize>>>,
    /// CPUs that run a task of each space, or use it for a moment.
    users: [Cell<u32>; SPACES],
    alive: [Cell<bool>; SPACES],
    ends: [Cell<End>; SPACES],
    /// A CPU was stopped by force: what it held is never given back.
    pub(super) has_stopped: Cell<bool>,
    /// Spaces made so far.
    pub(super) made: Cell<usize>,
    /// Spaces whose last lazy reference each CPU has dropped.
    to_reclaim: Vec<RefCell<Vec<usize>>>,
    pub(super) windows: RefCell<Vec<KernelWindow>>,
    /// Windows mapped so far.
    mapped: Cell<u64>,
    pub(super) busy: Cell<usize>,
}

impl Kernel {
    pub(crate) fn new(program: Program) -> Self {
        let cpus = program.cpus.len();
        Self {
            program,
            runs: vec![Cell::new(None); cpus],
            users: [const { Cell::new(0) }; SPACES],
            alive: [const { Cell::new(false) }; SPACES],
            ends: [const { Cell::new(End::NotYet) }; SPACES],
            has_stopped: Cell::new(false),
            made: Cell::new(0),
            to_reclaim: (0..cpus).map(|_| RefCell::default()).collect(),
            windows: RefCell::default(),
            mapped: Cell::new(0),
            busy: Cell::new(cpus),
        }
    }

    /// The space whose task `cpu` runs.
    pub(crate) fn runs(&self, cpu: usize) -> Option<usize> {
        self.runs[cpu].get()
    }

    pub(super) fn set_runs(&self, cpu: usize, space: Option<usize>) {
        self.runs[cpu].set(space);
    }

    /// One more CPU uses `space`.
    pub(super) fn hold(&self, space: usize) {
        self.users[space].set(self.users[space].get() + 1);
    }

    /// One less does.
    pub(super) fn unhold(&self, space: usize) {
        self.users[space].set(self.users[space].get() - 1);
    }

    pub(super) fn is_alive(&self, space: usize) -> bool {
        self.alive[space].get()
    }

    pub(super) fn set_alive(&self, space: usize) {
        self.alive[space].set(true);
    }

    /// True, and dead from now on, if one CPU alone uses `space`.
    pub(super) fn begin_exit(&self, space: usize) -> bool {
        let is_last = self.users[space].get() == 1;
        if is_last {
            self.alive[space].set(false);
        }
        is_last
    }

    /// The space is being destroyed, or can be freed.
    pub(crate) fn set_end(&self, space: usize, end: End) {
        self.ends[space].set(end);
    }

    /// The spaces that have come so far.
    pub(crate) fn ended(&self, end: End) -> impl Iterator<Item = usize> {
        self.ends.iter().enumerate().filter(move |(_, found)| found.get() == end).map(|(space, _)| space)
    }

    /// True if what is never given back is nobody's fault.
    pub(crate) fn may_leak(&self) -> bool {
        self.has_stopped.get()
    }

    /// The file's pages that the next window shows: other ones than the window before.
    pub(super) fn next_file_pages(&self) -> [u64; 2] {
        let first = 2 * self.mapped.replace(self.mapped.get() + 1);
        [first, first + 1]
    }

    /// The protocol has told `cpu` that the last lazy reference to a dying space is gone.
    pub(crate) fn owe_reclaim(&self, cpu: usize, space: usize) {
        self.to_reclaim[cpu].borrow_mut().push(space);
    }

    /// A digest of all that is shared by the CPUs.
    pub(super) fn digest(&self) -> u64 {
        let spaces =
            (0..SPACES).map(|space| u64::from(self.users[space].get()) << 1 | u64::from(self.alive[space].get()));
        spaces.fold(self.made.get() as u64 | (self.windows.borrow().len() as u64) << 32 | self.mapped.get() << 48, mix)
    }

    pub(super) fn next_to_reclaim(&self, cpu: usize) -> Option<usize> {
        self.to_reclaim[cpu].borrow_mut().pop()
    }
}
