//! What the little kernel remembers of its tasks and spaces.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use tlbkit::PAGE_BYTES;
use tlbkit_pmap::KernelWindow;

use super::{Op, Program, Tree};
use crate::digest::mix;

/// How far a space has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The end of the space has not begun.
    NotYet,
    /// The space was destroyed, and a CPU may still hold it.
    Awaited,
    /// The kernel was notified that it can be freed.
    Notified,
}

/// What the kernel knows of its tasks and spaces.
pub(crate) struct Kernel {
    pub(crate) program: Program,
    /// The space whose task each CPU runs.
    runs: Vec<Cell<Option<usize>>>,
    /// CPUs that run a task of each space, or use it for a moment.
    users: Vec<Cell<u32>>,
    alive: Vec<Cell<bool>>,
    ends: Vec<Cell<End>>,
    /// A CPU was stopped by force: what it held is never given back.
    pub(super) has_stopped: Cell<bool>,
    /// Nobody waits for a flush that was issued: its frames are lost.
    has_forgotten: Cell<bool>,
    /// Spaces made so far.
    pub(super) made: Cell<usize>,
    /// Spaces whose last lazy reference each CPU has dropped.
    to_reclaim: Vec<RefCell<Vec<usize>>>,
    pub(super) windows: RefCell<Vec<KernelWindow>>,
    /// CPUs that are about to take pages of a window out.
    window_users: Cell<u32>,
    /// Held by a CPU that takes pages of a window out.
    windows_lock: Cell<bool>,
    /// Windows mapped so far.
    mapped: Cell<u64>,
    /// The space that has the pages of 1 GiB.
    pub(super) giants: Cell<Option<usize>>,
    /// The page tables of the little kernel's own: in the kernel half, and in a space.
    trees: [Cell<Option<Tree>>; 2],
    /// CPUs that change a page of their own in one.
    tree_users: Cell<u32>,
    pub(super) busy: Cell<usize>,
    /// It walks page tables without a lock.
    pub(crate) has_walkers: bool,
    /// The program retires or reclaims something, so its CPUs pass.
    pub(super) passes: bool,
    /// What programs map is a file whose pages come and go.
    pub(super) reclaims: bool,
    /// CPUs may have upper page tables of their own.
    pub(super) has_directories: bool,
    /// They have them in each space from its beginning.
    pub(super) converts_new: bool,
}

impl Kernel {
    pub(crate) fn new(program: Program) -> Self {
        let (cpus, spaces) = (program.cpus.len(), program.spaces());
        let has_directories = program.has_directories();
        let converts_new = program.setup.first().is_some_and(|&(_, op)| op == Op::Directories);
        let has_walkers = program.has_walkers();
        let reclaims = program.reclaims();
        let passes = reclaims || program.ops().any(|op| matches!(op, Op::Retire(..)));
        Self {
            program,
            runs: vec![Cell::new(None); cpus],
            users: vec![Cell::new(0); spaces],
            alive: vec![Cell::new(false); spaces],
            ends: vec![Cell::new(End::NotYet); spaces],
            has_stopped: Cell::new(false),
            has_forgotten: Cell::new(false),
            made: Cell::new(0),
            to_reclaim: (0..cpus).map(|_| RefCell::default()).collect(),
            windows: RefCell::default(),
            window_users: Cell::new(0),
            windows_lock: Cell::new(false),
            mapped: Cell::new(0),
            giants: Cell::new(None),
            trees: Default::default(),
            tree_users: Cell::new(0),
            busy: Cell::new(cpus),
            has_walkers,
            passes,
            reclaims,
            has_directories,
            converts_new,
        }
    }

    /// Whose the upper page tables are.
    pub(crate) const fn directories(&self) -> tlbkit::Directories {
        if self.has_directories { tlbkit::Directories::OfEachCpu } else { tlbkit::Directories::Shared }
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

    pub(super) fn end_of(&self, space: usize) -> End {
        self.ends[space].get()
    }

    pub(super) fn has_windows(&self) -> bool {
        !self.windows.borrow().is_empty()
    }

    /// The newest window, to be unmapped as a whole, unless somebody is about to take pages of one out.
    pub(super) fn take_window(&self) -> Option<KernelWindow> {
        if self.window_users.get() == 0 { self.windows.borrow_mut().pop() } else { None }
    }

    /// The addresses of the newest window. No window goes as a whole from here on.
    pub(super) fn use_newest_window(&self) -> Option<Range<u64>> {
        let newest = self.windows.borrow().last().map(|window| window.va..window.va + window.pages * PAGE_BYTES)?;
        self.window_users.set(self.window_users.get() + 1);
        Some(newest)
    }

    /// One less is about to take pages out.
    pub(super) fn unuse_windows(&self) {
        self.window_users.set(self.window_users.get() - 1);
    }

    /// Takes the windows' lock. True if somebody holds it already.
    pub(super) fn lock_windows(&self) -> bool {
        self.windows_lock.replace(true)
    }

    pub(super) fn unlock_windows(&self) {
        self.windows_lock.set(false);
    }

    /// Where the tree of `space` is kept, which all spaces share, or that of the kernel half.
    pub(super) fn tree(&self, space: Option<usize>) -> &Cell<Option<Tree>> {
        &self.trees[usize::from(space.is_some())]
    }

    /// Both places.
    pub(super) fn trees(&self) -> &[Cell<Option<Tree>>] {
        &self.trees
    }

    /// A CPU changes a page that it alone uses: no tree goes from here on.
    pub(super) fn use_tree(&self) {
        self.tree_users.set(self.tree_users.get() + 1);
    }

    /// One less does.
    pub(super) fn unuse_tree(&self) {
        self.tree_users.set(self.tree_users.get() - 1);
    }

    pub(super) fn is_tree_used(&self) -> bool {
        self.tree_users.get() != 0
    }

    /// The spaces that have come so far.
    pub(crate) fn ended(&self, end: End) -> impl Iterator<Item = usize> {
        self.ends.iter().enumerate().filter(move |(_, found)| found.get() == end).map(|(space, _)| space)
    }

    /// True if a space that is never given back is nobody's fault.
    pub(crate) fn may_leak(&self) -> bool {
        self.has_stopped.get()
    }

    /// True if a frame that is never given back is nobody's fault.
    pub(crate) fn may_leak_frames(&self) -> bool {
        self.may_leak() || self.has_forgotten.get()
    }

    /// A flush that was issued is forgotten.
    pub(super) fn set_forgot(&self) {
        self.has_forgotten.set(true);
    }

    /// The file's pages that the next window shows: other ones than the window before.
    pub(super) fn next_file_pages(&self) -> [u64; 2] {
        let first = 2 * self.mapped.replace(self.mapped.get() + 1);
        [first, first + 1]
    }

    /// The protocol has notified `cpu` that the last lazy reference to a dying space is gone.
    pub(crate) fn add_to_reclaim(&self, cpu: usize, space: usize) {
        self.to_reclaim[cpu].borrow_mut().push(space);
    }

    /// A digest of all that is shared by the CPUs.
    pub(super) fn digest(&self) -> u64 {
        let spaces = self
            .users
            .iter()
            .zip(&self.alive)
            .map(|(users, alive)| u64::from(users.get()) << 1 | u64::from(alive.get()));
        let made = self.made.get() as u64 | (self.windows.borrow().len() as u64) << 32 | self.mapped.get() << 48;
        let trees = self.trees.iter().map(|tree| tree.get().map_or(0, |tree| 1 + tree.space.map_or(0, |n| n as u64)));
        let trees = trees.fold(u64::from(self.tree_users.get()), |digest, tree| digest << 8 | tree);
        let windows = u64::from(self.window_users.get()) << 1 | u64::from(self.windows_lock.get()) | trees << 32;
        spaces.fold(mix(windows, made), mix)
    }

    pub(super) fn next_to_reclaim(&self, cpu: usize) -> Option<usize> {
        self.to_reclaim[cpu].borrow_mut().pop()
    }
}
