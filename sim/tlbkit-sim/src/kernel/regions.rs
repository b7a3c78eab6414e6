//! The lock of a space's regions: who waits for it sleeps.
//!
//! `tlbkit-pmap` has a lock of its own there, whose waiters spin. It stays, as its line moves as that of a kernel's
//! count of holders does, but nobody waits for it: this lock is taken around it (`sleeping`). It is Linux's
//! (kernel/locking/rwsem.c), as far as decides who waits:
//!
//! - A fault and a sweep that keeps the regions take it for reading, whoever changes them for writing.
//! - A reader that finds a writer goes to the end of the queue and sleeps. So does one that finds other readers and
//!   somebody in the queue, so that a stream of readers does not keep a writer out.
//! - A writer that finds a writer that runs spins for it; readers it spins for during a short time, which grows with
//!   their number. Then it goes to the end of the queue and sleeps.
//! - Who lets go of it as the last one wakes the first of the queue: all readers of the queue, which have it from then
//!   on, or one writer, which has to take it. Until it has woken anybody may come before it, unless it has waited for
//!   4 ms.
//!
//! A wake-up costs what it costs elsewhere: an interrupt where the CPU idles, and a switch.

use std::cell::RefCell;
use std::collections::VecDeque;

/// A task, as the kernel numbers it.
type TaskIndex = u32;

/// For what somebody has the lock, or wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// With others.
    Read,
    /// Alone.
    Write,
}

/// Whether a waiter has been told to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sleep {
    Asleep,
    Woken,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    task: TaskIndex,
    wants: Hold,
    since: u64,
    sleep: Sleep,
}

/// Who has the lock, and who waits for it asleep.
#[derive(Debug, Default)]
pub(super) struct Holders {
    pub(super) readers: u64,
    pub(super) writer: Option<TaskIndex>,
    queue: VecDeque<Waiter>,
}

/// The lock of one space's regions.
#[derive(Debug, Default)]
pub(super) struct RegionLock(pub(super) RefCell<Holders>);

impl Holders {
    fn is_free(&self) -> bool {
        self.readers == 0 && self.writer.is_none()
    }

    /// Takes the lock for a task that is not in the queue, if it may be taken at `now`.
    pub(super) fn take(&mut self, task: TaskIndex, wants: Hold, now: u64, patience: u64) -> bool {
        let is_reserved = self.queue.front().is_some_and(|first| now > first.since + patience);
        let may = !is_reserved
            && match wants {
                Hold::Read => self.writer.is_none() && (self.readers == 0 || self.queue.is_empty()),
                Hold::Write => self.is_free(),
            };
        if may {
            self.give(task, wants);
        }
        may
    }

    /// Takes the lock for a writer in the queue that was woken, if it is free. If not, the writer sleeps again.
    pub(super) fn take_as_first(&mut self, task: TaskIndex) -> bool {
        if self.is_free() {
            self.queue.pop_front();
            self.give(task, Hold::Write);
            return true;
        }
        self.queue[0].sleep = Sleep::Asleep;
        false
    }

    /// Puts a task that is about to sleep at the end of the queue.
    pub(super) fn queue(&mut self, task: TaskIndex, wants: Hold, since: u64) {
        self.queue.push_back(Waiter { task, wants, since, sleep: Sleep::Asleep });
    }

    fn give(&mut self, task: TaskIndex, wants: Hold) {
        match wants {
            Hold::Read => self.readers += 1,
            Hold::Write => self.writer = Some(task),
        }
    }

    /// Lets go, and says who is to be woken.
    pub(super) fn release(&mut self, hold: Hold) -> Vec<TaskIndex> {
        match hold {
            Hold::Read => self.readers -= 1,
            Hold::Write => self.writer = None,
        }
        match self.queue.front_mut() {
            Some(first) if self.readers == 0 && first.sleep == Sleep::Asleep => match first.wants {
                Hold::Read => self.admit_readers(),
                Hold::Write => {
                    first.sleep = Sleep::Woken;
                    vec![first.task]
                }
            },
            _ => Vec::new(),
        }
    }

    fn admit_readers(&mut self) -> Vec<TaskIndex> {
        let (readers, writers) = self.queue.drain(..).partition::<VecDeque<_>, _>(|waiter| waiter.wants == Hold::Read);
        self.queue = writers;
        self.readers += readers.len() as u64;
        readers.iter().map(|reader| reader.task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: u64 = 1_000;

    impl Holders {
        fn wait(&mut self, task: TaskIndex, wants: Hold, since: u64) {
            assert!(!self.take(task, wants, since, PATIENCE), "task {task} has no reason to wait");
            self.queue(task, wants, since);
        }
    }

    #[test]
    fn readers_share_until_a_writer_waits_and_come_before_it_once_it_is_free_but_not_for_ever() {
        let mut lock = Holders::default();
        assert!(lock.take(0, Hold::Read, 0, PATIENCE) && lock.take(1, Hold::Read, 0, PATIENCE));
        lock.wait(2, Hold::Write, 10);
        lock.wait(3, Hold::Read, 20);
        assert_eq!(lock.release(Hold::Read), [], "a reader is left");
        assert_eq!(lock.release(Hold::Read), [2]);
        assert!(lock.take(4, Hold::Read, 10 + PATIENCE, PATIENCE), "the writer has not come yet");
        assert!(!lock.take_as_first(2), "so it sleeps again");
        assert_eq!(lock.release(Hold::Read), [2]);
        assert!(!lock.take(5, Hold::Read, 10 + PATIENCE + 1, PATIENCE), "it has waited for long enough");
        assert!(lock.take_as_first(2));
        assert_eq!(lock.release(Hold::Write), [3]);
        assert_eq!((lock.readers, lock.writer), (1, None), "who reads has it when woken");
    }

    #[test]
    fn a_writer_that_lets_go_wakes_all_readers_of_the_queue_and_no_writer_twice() {
        let mut lock = Holders::default();
        assert!(lock.take(0, Hold::Write, 0, PATIENCE));
        for (task, wants) in [(1, Hold::Read), (2, Hold::Write), (3, Hold::Read)] {
            lock.wait(task, wants, 5);
        }
        assert_eq!(lock.release(Hold::Write), [1, 3]);
        assert_eq!(lock.release(Hold::Read), []);
        assert_eq!(lock.release(Hold::Read), [2]);
        assert!(lock.take(4, Hold::Write, 6, PATIENCE), "whoever comes first");
        assert_eq!(lock.release(Hold::Write), [], "it is on its way");
        assert!(lock.take_as_first(2));
    }
}
