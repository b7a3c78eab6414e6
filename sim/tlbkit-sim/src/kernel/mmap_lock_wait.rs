//! How a task gets the mmap lock of its space: it spins as long as that is worth while, and then sleeps. The rules are
//! those of `mmap_lock`.

use super::TaskIndex;
use super::mmap_lock::{LockMode, MmapLock, MmapLockWaits};
use super::state::Kernel;
use super::task::Process;

/// How long the first of the queue lets others pass (`RWSEM_WAIT_TIMEOUT`).
const PATIENCE_NS: u64 = 4_000_000;
/// How long a writer spins for readers: a fixed time, and some more for each of them up to a limit
/// (`rwsem_rspin_threshold`).
const SPIN_NS: u64 = 10_000;
const SPIN_READER_NS: u64 = 500;
const MOST_SPIN_READERS: u64 = 30;

impl Kernel {
    /// The mmap lock of a new process.
    pub(super) fn new_mmap_lock(&self) -> MmapLock {
        MmapLock::new(self.settings.mmap_lock_waits, self.machine.costs().cycles_of_ns(PATIENCE_NS))
    }

    /// The running task takes the mmap lock of its process. It may sleep, and run on another CPU afterwards.
    pub(super) fn lock_mmap(&'static self, me: TaskIndex, wants: LockMode) {
        let (machine, process) = (self.machine, self.tasks.get(me).process);
        let lock = || process.mmap_lock.borrow_mut();
        let take = || lock().take(me, wants, machine.running().now());
        self.let_threads_catch_up(process);
        let may_spin = wants == LockMode::Write && self.settings.mmap_lock_waits == MmapLockWaits::OptimisticSpinning;
        if take() || may_spin && self.spin_for_mmap(process, take) {
            return;
        }
        let since = machine.running().now();
        lock().queue(me, wants, since);
        self.block(me);
        while wants == LockMode::Write && !lock().take_as_first(me) {
            self.block(me);
        }
    }

    /// Lets other threads of the process that are behind in time act first, if there are any: a lock changes hands in
    /// the order of time.
    pub(super) fn let_threads_catch_up(&'static self, process: &'static Process) {
        if process.threads.get() > 1 {
            self.machine.sync(0);
        }
    }

    /// Spins as long as that is worth while. Returns whether `take` took the lock.
    fn spin_for_mmap(&'static self, process: &Process, take: impl Fn() -> bool) -> bool {
        let machine = self.machine;
        let start = machine.running().now();
        loop {
            let (writer, readers) = {
                let lock = process.mmap_lock.borrow();
                (lock.writer(), lock.readers())
            };
            let is_worth_while = match writer {
                Some(writer) => self.tasks.get(writer).on_cpu.get().is_some(),
                None => {
                    let ns = SPIN_NS + readers.min(MOST_SPIN_READERS) * SPIN_READER_NS;
                    machine.running().now() < start + machine.costs().cycles_of_ns(ns)
                }
            };
            if !is_worth_while {
                return false;
            }
            machine.pause();
            if take() {
                return true;
            }
        }
    }

    /// The running task, which changed regions, becomes a reader of the mmap lock, and wakes the readers that may have
    /// it as well.
    pub(super) fn downgrade_mmap(&'static self, me: TaskIndex) {
        let process = self.tasks.get(me).process;
        self.let_threads_catch_up(process);
        let woken = process.mmap_lock.borrow_mut().downgrade();
        woken.into_iter().for_each(|task| self.make_runnable(task));
    }

    /// The running task releases the mmap lock of its process, and wakes the tasks that may have it next.
    pub(super) fn unlock_mmap(&'static self, me: TaskIndex, mode: LockMode) {
        let process = self.tasks.get(me).process;
        self.let_threads_catch_up(process);
        let woken = process.mmap_lock.borrow_mut().release(mode);
        woken.into_iter().for_each(|task| self.make_runnable(task));
    }
}
