//! The locks of single regions, for kernels that have them.
//!
//! Who leaves the regions as they are, a fault or what gives pages back, takes the lock of its region for reading and
//! no other (Linux's include/linux/mmap_lock.h). Who changes regions has the lock of all, and takes that of each region
//! which it cuts, grows or removes. It waits for those who read there. Who comes meanwhile takes the lock of all for
//! reading, so it sleeps. The locks are let go of together with that of all, or when their holder becomes a reader of
//! it.
//!
//! Regions that lie side by side and are alike are one, whichever threads mapped them. So threads that map and unmap
//! memory beside each other wait for each other here.
//!
//! What their lines cost is not charged here: the lock of `tlbkit-pmap` stands for it, as for that of all regions.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use super::task_index::TaskIndex;

/// The locks of the single regions of one space.
#[derive(Debug, Default)]
pub(super) struct SingleLocks {
    /// Who reads, and at which address.
    readers: RefCell<Vec<(TaskIndex, u64)>>,
    /// What a writer has taken, or waits for. There is one writer at most: it has the lock of all.
    written: RefCell<Option<Range<u64>>>,
    /// The writer, if it sleeps until nobody reads there.
    asleep: Cell<Option<TaskIndex>>,
}

impl SingleLocks {
    /// Takes the lock of the region at `va` for reading, if no writer has it or waits for it.
    pub(super) fn read(&self, task: TaskIndex, va: u64) -> bool {
        let may = !self.written.borrow().as_ref().is_some_and(|written| written.contains(&va));
        if may {
            self.readers.borrow_mut().push((task, va));
        }
        may
    }

    /// A reader lets go. Says which writer is to be woken.
    pub(super) fn end_read(&self, task: TaskIndex) -> Option<TaskIndex> {
        self.readers.borrow_mut().retain(|(reader, _)| *reader != task);
        if self.are_read() { None } else { self.asleep.take() }
    }

    /// Keeps new readers out of `range`.
    pub(super) fn write(&self, range: Range<u64>) {
        self.written.replace(Some(range));
    }

    /// Whether somebody reads what is written.
    pub(super) fn are_read(&self) -> bool {
        let written = self.written.borrow();
        let is_written = |va: &u64| written.as_ref().is_some_and(|written| written.contains(va));
        self.readers.borrow().iter().any(|(_, va)| is_written(va))
    }

    /// The writer sleeps until it is named by [`end_read`](Self::end_read).
    pub(super) fn sleep(&self, writer: TaskIndex) {
        self.asleep.set(Some(writer));
    }

    /// The writer lets go.
    pub(super) fn end_write(&self) {
        self.written.replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_who_reads_in_its_regions_and_for_nobody_else() {
        let locks = SingleLocks::default();
        assert!(locks.read(1, 0x1000) && locks.read(2, 0x9000));
        locks.write(0..0x5000);
        assert!(locks.are_read());
        locks.sleep(7);
        assert_eq!(locks.end_read(2), None, "it reads elsewhere");
        assert_eq!(locks.end_read(1), Some(7));
        assert!(!locks.are_read());
        assert_eq!(locks.end_read(1), None, "it is woken once");
    }

    #[test]
    fn nobody_reads_what_is_written_until_the_writer_lets_go() {
        let locks = SingleLocks::default();
        locks.write(0x1000..0x2000);
        assert!(!locks.read(1, 0x1fff) && locks.read(1, 0x2000));
        assert_eq!(locks.end_read(1), None);
        locks.end_write();
        assert!(locks.read(1, 0x1fff));
    }
}
