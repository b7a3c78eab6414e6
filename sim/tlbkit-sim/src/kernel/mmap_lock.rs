//! The mmap lock of a space, which is the lock of all its regions (Linux's `mmap_lock`; a region is its VMA). A task
//! that waits for it sleeps.
//!
//! `tlbkit-pmap` has a separate lock there, whose waiters spin. That lock is still taken, because its line moves as
//! the line of a kernel's count of holders does. Nobody waits for it, as this one is taken around it
//! (`mmap_lock_wait`). This one follows Linux (kernel/locking/rwsem.c, lib/rwsem.c before 3.16) in all that decides who
//! waits:
//!
//! - A fault, and a sweep that keeps the regions, take it for reading. Changes of regions take it for writing.
//! - A reader that finds a writer goes to the end of the queue and sleeps. So does one that finds other readers and a
//!   queue, so that a stream of readers does not keep a writer out.
//! - A writer that does not get the lock goes to the end of the queue and sleeps. The last holder wakes the first of
//!   the queue when it releases the lock.
//!
//! The rest has changed over the years ([`MmapLockWaits`]):
//!
//! - `Fifo`: a task that finds a queue joins it. The first of the queue has the lock when it is woken: one writer, or
//!   the readers up to the next writer.
//! - `WriterStealing`: a writer takes a free lock past all who wait for it. A writer that was woken has to take the
//!   lock as well, and sleeps again if another one was faster. Readers that are woken have the lock; new readers join
//!   the queue.
//! - `OptimisticSpinning`: before it sleeps, a writer spins while the writer that has the lock runs, and for readers
//!   during a short time, which grows with their number. All readers of the queue are woken together. Until a woken
//!   writer runs, any task may take the lock before it, unless it has waited for 4 ms.
//!
//! A wake-up costs what it costs elsewhere: an interrupt where the CPU idles, and a switch.

use std::collections::VecDeque;

use super::TaskIndex;

/// How tasks wait for the mmap lock, which depends on the kernel's age.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MmapLockWaits {
    /// First come, first served: Linux up to 3.9.
    Fifo,
    /// Writers take a free lock before tasks that sleep for it: Linux 3.10 to 3.15.
    WriterStealing,
    /// Writers also spin before they sleep: Linux since 3.16.
    #[default]
    OptimisticSpinning,
}

/// How a task holds the lock, or wants to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockMode {
    /// Together with other readers.
    Read,
    /// Alone.
    Write,
}

/// Whether a waiter has been woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sleep {
    Asleep,
    Woken,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    task: TaskIndex,
    wants: LockMode,
    since: u64,
    sleep: Sleep,
}

/// The lock: who has it, and who sleeps for it.
#[derive(Debug)]
pub(super) struct MmapLock {
    waits: MmapLockWaits,
    /// For how many cycles the first of the queue lets others pass under `OptimisticSpinning`.
    patience_cycles: u64,
    readers: u64,
    writer: Option<TaskIndex>,
    queue: VecDeque<Waiter>,
}

impl MmapLock {
    pub(super) fn new(waits: MmapLockWaits, patience_cycles: u64) -> Self {
        Self { waits, patience_cycles, readers: 0, writer: None, queue: VecDeque::new() }
    }

    /// The writer that has the lock, if one has it.
    pub(super) fn writer(&self) -> Option<TaskIndex> {
        self.writer
    }

    /// How many readers have the lock.
    pub(super) fn readers(&self) -> u64 {
        self.readers
    }

    fn is_free(&self) -> bool {
        self.readers == 0 && self.writer.is_none()
    }

    /// Takes the lock for a task that is not in the queue, if the task may have it at `now`.
    pub(super) fn take(&mut self, task: TaskIndex, wants: LockMode, now: u64) -> bool {
        let may = match (self.waits, wants) {
            (MmapLockWaits::OptimisticSpinning, _) => self.may_pass_the_queue(wants, now),
            (_, LockMode::Read) => self.writer.is_none() && self.queue.is_empty(),
            // Under `Fifo` a free lock has no queue.
            (_, LockMode::Write) => self.is_free(),
        };
        if may {
            self.give(task, wants);
        }
        may
    }

    /// Whether a new task may take the lock before those of the queue.
    fn may_pass_the_queue(&self, wants: LockMode, now: u64) -> bool {
        let is_reserved = self.queue.front().is_some_and(|first| now > first.since + self.patience_cycles);
        !is_reserved
            && match wants {
                LockMode::Read => self.writer.is_none() && (self.readers == 0 || self.queue.is_empty()),
                LockMode::Write => self.is_free(),
            }
    }

    /// Takes the lock for a writer of the queue that was woken, if it is free. If not, the writer sleeps again. Under
    /// `Fifo` the writer was given the lock before.
    pub(super) fn take_as_first(&mut self, task: TaskIndex) -> bool {
        if self.writer == Some(task) {
            return true;
        }
        if self.is_free() {
            self.queue.pop_front();
            self.give(task, LockMode::Write);
            return true;
        }
        self.queue[0].sleep = Sleep::Asleep;
        false
    }

    /// Puts a task that is about to sleep at the end of the queue.
    pub(super) fn queue(&mut self, task: TaskIndex, wants: LockMode, since: u64) {
        self.queue.push_back(Waiter { task, wants, since, sleep: Sleep::Asleep });
    }

    fn give(&mut self, task: TaskIndex, wants: LockMode) {
        match wants {
            LockMode::Read => self.readers += 1,
            LockMode::Write => self.writer = Some(task),
        }
    }

    /// Releases the lock, and returns the tasks that must be woken.
    pub(super) fn release(&mut self, mode: LockMode) -> Vec<TaskIndex> {
        match mode {
            LockMode::Read => self.readers -= 1,
            LockMode::Write => self.writer = None,
        }
        match self.queue.front_mut() {
            Some(first) if self.readers == 0 && first.sleep == Sleep::Asleep => match first.wants {
                LockMode::Read => self.admit_readers(),
                LockMode::Write if self.waits == MmapLockWaits::Fifo => self.admit_writer(),
                LockMode::Write => {
                    first.sleep = Sleep::Woken;
                    vec![first.task]
                }
            },
            _ => Vec::new(),
        }
    }

    /// Makes the writer a reader, and returns the readers that must be woken.
    pub(super) fn downgrade(&mut self) -> Vec<TaskIndex> {
        self.writer = None;
        self.readers = 1;
        match self.queue.front() {
            Some(first) if first.wants == LockMode::Read => self.admit_readers(),
            _ => Vec::new(),
        }
    }

    /// Gives the lock to the readers before the first writer of the queue; under `OptimisticSpinning` to all readers.
    fn admit_readers(&mut self) -> Vec<TaskIndex> {
        let reads = |waiter: &Waiter| waiter.wants == LockMode::Read;
        let others = if self.waits == MmapLockWaits::OptimisticSpinning {
            self.queue.iter().copied().filter(|waiter| !reads(waiter)).collect()
        } else {
            self.queue.iter().copied().skip_while(reads).collect()
        };
        let before = std::mem::replace(&mut self.queue, others);
        let admitted = before.len() - self.queue.len();
        self.readers += admitted as u64;
        before.iter().filter(|waiter| reads(waiter)).take(admitted).map(|reader| reader.task).collect()
    }

    fn admit_writer(&mut self) -> Vec<TaskIndex> {
        self.writer = self.queue.pop_front().map(|first| first.task);
        self.writer.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: u64 = 1_000;

    fn new_lock(waits: MmapLockWaits) -> MmapLock {
        MmapLock::new(waits, PATIENCE)
    }

    impl MmapLock {
        fn wait(&mut self, task: TaskIndex, wants: LockMode, since: u64) {
            assert!(!self.take(task, wants, since), "task {task} has no reason to wait");
            self.queue(task, wants, since);
        }
    }

    #[test]
    fn readers_share_until_a_writer_waits_and_come_before_it_once_it_is_free_but_not_for_ever() {
        let mut lock = new_lock(MmapLockWaits::OptimisticSpinning);
        assert!(lock.take(0, LockMode::Read, 0) && lock.take(1, LockMode::Read, 0));
        lock.wait(2, LockMode::Write, 10);
        lock.wait(3, LockMode::Read, 20);
        assert_eq!(lock.release(LockMode::Read), [], "a reader is left");
        assert_eq!(lock.release(LockMode::Read), [2]);
        assert!(lock.take(4, LockMode::Read, 10 + PATIENCE), "the writer has not come yet");
        assert!(!lock.take_as_first(2), "so it sleeps again");
        assert_eq!(lock.release(LockMode::Read), [2]);
        assert!(!lock.take(5, LockMode::Read, 10 + PATIENCE + 1), "it has waited for long enough");
        assert!(lock.take_as_first(2));
        assert_eq!(lock.release(LockMode::Write), [3]);
        assert_eq!((lock.readers, lock.writer), (1, None), "who reads has it when woken");
    }

    #[test]
    fn a_writer_that_lets_go_wakes_all_readers_of_the_queue_and_no_writer_twice() {
        let mut lock = new_lock(MmapLockWaits::OptimisticSpinning);
        assert!(lock.take(0, LockMode::Write, 0));
        for (task, wants) in [(1, LockMode::Read), (2, LockMode::Write), (3, LockMode::Read)] {
            lock.wait(task, wants, 5);
        }
        assert_eq!(lock.release(LockMode::Write), [1, 3]);
        assert_eq!(lock.release(LockMode::Read), []);
        assert_eq!(lock.release(LockMode::Read), [2]);
        assert!(lock.take(4, LockMode::Write, 6), "the first that comes");
        assert_eq!(lock.release(LockMode::Write), [], "it is on its way");
        assert!(lock.take_as_first(2));
    }

    #[test]
    fn a_writer_that_becomes_a_reader_lets_those_in_who_wait_to_read_in_front() {
        let mut lock = new_lock(MmapLockWaits::OptimisticSpinning);
        assert!(lock.take(0, LockMode::Write, 0));
        for (task, wants) in [(1, LockMode::Read), (2, LockMode::Write), (3, LockMode::Read)] {
            lock.wait(task, wants, 5);
        }
        assert_eq!(lock.downgrade(), [1, 3]);
        assert_eq!((lock.readers, lock.writer), (3, None));
        let mut lock = new_lock(MmapLockWaits::OptimisticSpinning);
        assert!(lock.take(0, LockMode::Write, 0));
        lock.wait(1, LockMode::Write, 5);
        assert_eq!(lock.downgrade(), [], "a writer waits until it has let go");
        assert_eq!(lock.release(LockMode::Read), [1]);
    }

    #[test]
    fn first_come_first_served_a_writer_has_the_lock_when_it_is_woken_and_readers_pass_nobody() {
        let mut lock = new_lock(MmapLockWaits::Fifo);
        assert!(lock.take(0, LockMode::Read, 0));
        for (task, wants) in
            [(1, LockMode::Write), (2, LockMode::Read), (3, LockMode::Read), (4, LockMode::Write), (5, LockMode::Read)]
        {
            lock.wait(task, wants, 5);
        }
        assert_eq!(lock.release(LockMode::Read), [1]);
        lock.wait(6, LockMode::Write, 6);
        assert!(lock.take_as_first(1), "it was given the lock");
        assert_eq!(lock.release(LockMode::Write), [2, 3], "up to the next writer");
        assert_eq!(lock.release(LockMode::Read), []);
        assert_eq!(lock.release(LockMode::Read), [4]);
        assert_eq!(lock.release(LockMode::Write), [5]);
        assert_eq!(lock.release(LockMode::Read), [6]);
    }

    #[test]
    fn writers_pass_a_writer_that_is_on_its_way_and_readers_do_not() {
        let mut lock = new_lock(MmapLockWaits::WriterStealing);
        assert!(lock.take(0, LockMode::Write, 0));
        lock.wait(1, LockMode::Write, 5);
        assert_eq!(lock.release(LockMode::Write), [1]);
        lock.wait(2, LockMode::Read, 6);
        assert!(lock.take(3, LockMode::Write, 7), "nobody has it");
        assert!(!lock.take_as_first(1), "so it sleeps again");
        assert_eq!(lock.release(LockMode::Write), [1]);
        assert!(lock.take_as_first(1));
        assert_eq!(lock.release(LockMode::Write), [2]);
        assert_eq!(lock.readers, 1);
    }
}
