//! The lock of a space's regions: who waits for it sleeps.
//!
//! `tlbkit-pmap` has a lock of its own there, whose waiters spin. It stays, as its line moves as that of a kernel's
//! count of holders does, but nobody waits for it: this lock is taken around it (`sleeping`). It is Linux's
//! (kernel/locking/rwsem.c, lib/rwsem.c before 3.16), as far as decides who waits:
//!
//! - A fault and a sweep that keeps the regions take it for reading, whoever changes them for writing.
//! - A reader that finds a writer goes to the end of the queue and sleeps. So does one that finds other readers and
//!   somebody in the queue, so that a stream of readers does not keep a writer out.
//! - A writer that does not get it goes to the end of the queue and sleeps. Who lets go of it as the last one wakes
//!   the first of the queue.
//!
//! The rest has changed with the years (`RegionWaits`):
//!
//! - `InOrder`: who finds somebody in the queue joins it. The first of the queue has the lock when it is woken: one
//!   writer, or the readers up to the next writer.
//! - `WritersPass`: a writer takes a lock that nobody has, whoever waits. One that was woken has to take it as well,
//!   and sleeps again if another was faster. Readers that are woken have it, and those that come join the queue.
//! - `Spin`: a writer spins for a writer that runs, and for readers during a short time, which grows with their number,
//!   before it sleeps. All readers of the queue are woken together. Until a woken writer has come anybody may come
//!   before it, unless it has waited for 4 ms.
//!
//! A wake-up costs what it costs elsewhere: an interrupt where the CPU idles, and a switch.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::task_index::TaskIndex;

/// How tasks wait for the lock, which depends on the kernel's age.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RegionWaits {
    /// In order: Linux up to 3.9.
    InOrder,
    /// Writers pass others that sleep: Linux 3.10 to 3.15.
    WritersPass,
    /// Writers spin as well, before they sleep: Linux since 3.16.
    #[default]
    Spin,
}

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

/// How a kernel's tasks wait for the lock, and for how many cycles the first lets others pass under `Spin`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) waits: RegionWaits,
    pub(super) patience: u64,
}

/// The lock of one space's regions.
#[derive(Debug, Default)]
pub(super) struct RegionLock(pub(super) RefCell<Holders>);

impl Holders {
    fn is_free(&self) -> bool {
        self.readers == 0 && self.writer.is_none()
    }

    /// Takes the lock for a task that is not in the queue, if it may be taken at `now`.
    pub(super) fn take(&mut self, task: TaskIndex, wants: Hold, now: u64, rule: Rule) -> bool {
        let may = match (rule.waits, wants) {
            (RegionWaits::Spin, _) => self.may_come_before_the_first(wants, now, rule.patience),
            (_, Hold::Read) => self.writer.is_none() && self.queue.is_empty(),
            // In order nobody waits for a lock that is free.
            (_, Hold::Write) => self.is_free(),
        };
        if may {
            self.give(task, wants);
        }
        may
    }

    fn may_come_before_the_first(&self, wants: Hold, now: u64, patience: u64) -> bool {
        let is_reserved = self.queue.front().is_some_and(|first| now > first.since + patience);
        !is_reserved
            && match wants {
                Hold::Read => self.writer.is_none() && (self.readers == 0 || self.queue.is_empty()),
                Hold::Write => self.is_free(),
            }
    }

    /// Takes the lock for a writer in the queue that was woken, if it is free. If not, the writer sleeps again. Under
    /// `InOrder` it was given the lock before.
    pub(super) fn take_as_first(&mut self, task: TaskIndex) -> bool {
        if self.writer == Some(task) {
            return true;
        }
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
    pub(super) fn release(&mut self, hold: Hold, waits: RegionWaits) -> Vec<TaskIndex> {
        match hold {
            Hold::Read => self.readers -= 1,
            Hold::Write => self.writer = None,
        }
        match self.queue.front_mut() {
            Some(first) if self.readers == 0 && first.sleep == Sleep::Asleep => match first.wants {
                Hold::Read => self.admit_readers(waits),
                Hold::Write if waits == RegionWaits::InOrder => self.admit_writer(),

                Hold::Write => {
                    first.sleep = Sleep::Woken;
                    vec![first.task]
                }
            },
            _ => Vec::new(),
        }
    }

    /// The writer becomes a reader. Says which readers are to be woken: those who wait in front, and with `Spin` all.
    pub(super) fn downgrade(&mut self, waits: RegionWaits) -> Vec<TaskIndex> {
        self.writer = None;
        self.readers = 1;
        match self.queue.front() {
            Some(first) if first.wants == Hold::Read => self.admit_readers(waits),
            _ => Vec::new(),
        }
    }

    /// Those in front of the first writer, or all.
    fn admit_readers(&mut self, waits: RegionWaits) -> Vec<TaskIndex> {
        let reads = |waiter: &Waiter| waiter.wants == Hold::Read;
        let others = if waits == RegionWaits::Spin {
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
    const SPIN: Rule = Rule { waits: RegionWaits::Spin, patience: PATIENCE };
    const IN_ORDER: Rule = Rule { waits: RegionWaits::InOrder, patience: PATIENCE };
    const WRITERS_PASS: Rule = Rule { waits: RegionWaits::WritersPass, patience: PATIENCE };

    impl Holders {
        fn wait(&mut self, task: TaskIndex, wants: Hold, since: u64, rule: Rule) {
            assert!(!self.take(task, wants, since, rule), "task {task} has no reason to wait");
            self.queue(task, wants, since);
        }
    }

    #[test]
    fn readers_share_until_a_writer_waits_and_come_before_it_once_it_is_free_but_not_for_ever() {
        let mut lock = Holders::default();
        assert!(lock.take(0, Hold::Read, 0, SPIN) && lock.take(1, Hold::Read, 0, SPIN));
        lock.wait(2, Hold::Write, 10, SPIN);
        lock.wait(3, Hold::Read, 20, SPIN);
        assert_eq!(lock.release(Hold::Read, SPIN.waits), [], "a reader is left");
        assert_eq!(lock.release(Hold::Read, SPIN.waits), [2]);
        assert!(lock.take(4, Hold::Read, 10 + PATIENCE, SPIN), "the writer has not come yet");
        assert!(!lock.take_as_first(2), "so it sleeps again");
        assert_eq!(lock.release(Hold::Read, SPIN.waits), [2]);
        assert!(!lock.take(5, Hold::Read, 10 + PATIENCE + 1, SPIN), "it has waited for long enough");
        assert!(lock.take_as_first(2));
        assert_eq!(lock.release(Hold::Write, SPIN.waits), [3]);
        assert_eq!((lock.readers, lock.writer), (1, None), "who reads has it when woken");
    }

    #[test]
    fn a_writer_that_lets_go_wakes_all_readers_of_the_queue_and_no_writer_twice() {
        let mut lock = Holders::default();
        assert!(lock.take(0, Hold::Write, 0, SPIN));
        for (task, wants) in [(1, Hold::Read), (2, Hold::Write), (3, Hold::Read)] {
            lock.wait(task, wants, 5, SPIN);
        }
        assert_eq!(lock.release(Hold::Write, SPIN.waits), [1, 3]);
        assert_eq!(lock.release(Hold::Read, SPIN.waits), []);
        assert_eq!(lock.release(Hold::Read, SPIN.waits), [2]);
        assert!(lock.take(4, Hold::Write, 6, SPIN), "whoever comes first");
        assert_eq!(lock.release(Hold::Write, SPIN.waits), [], "it is on its way");
        assert!(lock.take_as_first(2));
    }

    #[test]
    fn a_writer_that_becomes_a_reader_lets_those_in_who_wait_to_read_in_front() {
        let mut lock = Holders::default();
        assert!(lock.take(0, Hold::Write, 0, SPIN));
        for (task, wants) in [(1, Hold::Read), (2, Hold::Write), (3, Hold::Read)] {
            lock.wait(task, wants, 5, SPIN);
        }
        assert_eq!(lock.downgrade(SPIN.waits), [1, 3]);
        assert_eq!((lock.readers, lock.writer), (3, None));
        let mut lock = Holders::default();
        assert!(lock.take(0, Hold::Write, 0, SPIN));
        lock.wait(1, Hold::Write, 5, SPIN);
        assert_eq!(lock.downgrade(SPIN.waits), [], "a writer waits until it has let go");
        assert_eq!(lock.release(Hold::Read, SPIN.waits), [1]);
    }

    #[test]
    fn in_order_a_writer_has_the_lock_when_it_is_woken_and_readers_pass_nobody() {
        let mut lock = Holders::default();
        assert!(lock.take(0, Hold::Read, 0, IN_ORDER));
        for (task, wants) in [(1, Hold::Write), (2, Hold::Read), (3, Hold::Read), (4, Hold::Write), (5, Hold::Read)] {
            lock.wait(task, wants, 5, IN_ORDER);
        }
        assert_eq!(lock.release(Hold::Read, IN_ORDER.waits), [1]);
        lock.wait(6, Hold::Write, 6, IN_ORDER);
        assert!(lock.take_as_first(1), "it was given the lock");
        assert_eq!(lock.release(Hold::Write, IN_ORDER.waits), [2, 3], "up to the next writer");
        assert_eq!(lock.release(Hold::Read, IN_ORDER.waits), []);
        assert_eq!(lock.release(Hold::Read, IN_ORDER.waits), [4]);
        assert_eq!(lock.release(Hold::Write, IN_ORDER.waits), [5]);
        assert_eq!(lock.release(Hold::Read, IN_ORDER.waits), [6]);
    }

    #[test]
    fn writers_pass_a_writer_that_is_on_its_way_and_readers_do_not() {
        let mut lock = Holders::default();
        assert!(lock.take(0, Hold::Write, 0, WRITERS_PASS));
        lock.wait(1, Hold::Write, 5, WRITERS_PASS);
        assert_eq!(lock.release(Hold::Write, WRITERS_PASS.waits), [1]);
        lock.wait(2, Hold::Read, 6, WRITERS_PASS);
        assert!(lock.take(3, Hold::Write, 7, WRITERS_PASS), "nobody has it");
        assert!(!lock.take_as_first(1), "so it sleeps again");
        assert_eq!(lock.release(Hold::Write, WRITERS_PASS.waits), [1]);
        assert!(lock.take_as_first(1));
        assert_eq!(lock.release(Hold::Write, WRITERS_PASS.waits), [2]);
        assert_eq!(lock.readers, 1);
    }
}
