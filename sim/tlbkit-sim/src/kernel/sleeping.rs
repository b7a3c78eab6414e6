//! How a task gets the lock of its space's regions: it spins as long as that is worth while, and sleeps. The rules are
//! those of `regions`.

use super::regions::{Hold, RegionLock, RegionWaits, Rule};
use super::state::Kernel;
use super::task::Process;
use super::task_index::TaskIndex;

/// How long who is first in the queue lets others pass (`RWSEM_WAIT_TIMEOUT`).
const PATIENCE_NS: u64 = 4_000_000;
/// How long a writer spins for readers: so much, and for each of them so much more, up to so many
/// (`rwsem_rspin_threshold`).
const SPIN_NS: u64 = 10_000;
const SPIN_READER_NS: u64 = 500;
const MOST_SPIN_READERS: u64 = 30;

impl Kernel {
    /// The running task takes the lock of its process's regions. It may sleep, and run on another CPU afterwards.
    pub(super) fn lock_regions(&'static self, me: TaskIndex, process: &'static Process, wants: Hold) {
        let (machine, lock) = (self.machine, &process.regions);
        let waits = self.habits.region_waits;
        let rule = Rule { waits, patience: machine.costs().cycles_of_ns(PATIENCE_NS) };
        let take = || lock.0.borrow_mut().take(me, wants, machine.running().now(), rule);
        self.let_threads_catch_up(process);
        let may_spin = wants == Hold::Write && waits == RegionWaits::Spin;
        if take() || may_spin && self.spin_for_regions(lock, take) {
            return;
        }
        let since = machine.running().now();
        lock.0.borrow_mut().queue(me, wants, since);
        self.block(me);
        while wants == Hold::Write && !lock.0.borrow_mut().take_as_first(me) {
            self.block(me);
        }
    }

    /// Who changes the lock does so in its turn, where there are others who could.
    pub(super) fn let_threads_catch_up(&'static self, process: &'static Process) {
        if process.threads.get() > 1 {
            self.machine.sync(0);
        }
    }

    /// Spins as long as it is worth while. True if the lock was taken.
    fn spin_for_regions(&'static self, lock: &RegionLock, take: impl Fn() -> bool) -> bool {
        let machine = self.machine;
        let start = machine.running().now();
        loop {
            let (writer, readers) = {
                let holders = lock.0.borrow();
                (holders.writer, holders.readers)
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

    /// The running task, which changed regions, becomes a reader of their lock, and wakes who may have it as well.
    pub(super) fn downgrade_regions(&'static self, process: &'static Process) {
        self.let_threads_catch_up(process);
        let woken = process.regions.0.borrow_mut().downgrade(self.habits.region_waits);
        woken.into_iter().for_each(|task| self.make_runnable(task));
    }

    /// The running task lets go of the lock of its process's regions, and wakes who may have it.
    pub(super) fn unlock_regions(&'static self, process: &'static Process, hold: Hold) {
        self.let_threads_catch_up(process);
        let woken = process.regions.0.borrow_mut().release(hold, self.habits.region_waits);
        woken.into_iter().for_each(|task| self.make_runnable(task));
    }
}
