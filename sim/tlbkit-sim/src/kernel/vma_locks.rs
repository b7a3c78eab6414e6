//! The per-VMA locks of a space: one lock for each of its regions, in kernels that have them.
//!
//! A fault, and a call that gives pages back, leave the regions as they are. They take the lock of their region for
//! reading, and no other lock (Linux's include/linux/mmap_lock.h). A thread that changes regions has the mmap lock, and
//! takes the lock of each region that it cuts, grows or removes. It waits for the readers of these. A reader that comes
//! meanwhile takes the mmap lock for reading instead, so it sleeps. The per-VMA locks are released together with the
//! mmap lock, or when their holder becomes a reader of that.
//!
//! Neighbouring regions that are alike are one region, whichever threads mapped them. So threads that map and unmap
//! memory beside each other wait for each other here.
//!
//! What the lines of these locks cost is not charged here: the lock of `tlbkit-pmap` stands for it, as it does for the
//! mmap lock.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use super::TaskIndex;

/// The per-VMA locks of one space.
#[derive(Debug, Default)]
pub(super) struct VmaLocks {
    /// The readers, each with the address at which it reads.
    readers: RefCell<Vec<(TaskIndex, u64)>>,
    /// What a writer has taken, or waits for. There is at most one writer, because it has the mmap lock.
    written: RefCell<Option<Range<u64>>>,
    /// The writer, while it sleeps until its regions have no reader.
    asleep: Cell<Option<TaskIndex>>,
}

impl VmaLocks {
    /// Takes the lock of the region at `va` for reading, if no writer has it or waits for it.
    pub(super) fn read(&self, task: TaskIndex, va: u64) -> bool {
        let may = !self.written.borrow().as_ref().is_some_and(|written| written.contains(&va));
        if may {
            self.readers.borrow_mut().push((task, va));
        }
        may
    }

    /// A reader releases its lock. Returns the writer that must be woken, if there is one.
    pub(super) fn end_read(&self, task: TaskIndex) -> Option<TaskIndex> {
        self.readers.borrow_mut().retain(|(reader, _)| *reader != task);
        if self.are_read() { None } else { self.asleep.take() }
    }

    /// Keeps new readers out of `range`.
    pub(super) fn write(&self, range: Range<u64>) {
        self.written.replace(Some(range));
    }

    /// Whether a region that is taken for writing still has a reader.
    pub(super) fn are_read(&self) -> bool {
        let written = self.written.borrow();
        let is_written = |va: &u64| written.as_ref().is_some_and(|written| written.contains(va));
        self.readers.borrow().iter().any(|(_, va)| is_written(va))
    }

    /// The writer sleeps until it is named by [`end_read`](Self::end_read).
    pub(super) fn sleep(&self, writer: TaskIndex) {
        self.asleep.set(Some(writer));
    }

    /// The writer releases its locks.
    pub(super) fn end_write(&self) {
        self.written.replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_who_reads_in_its_regions_and_for_nobody_else() {
        let locks = VmaLocks::default();
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
        let locks = VmaLocks::default();
        locks.write(0x1000..0x2000);
        assert!(!locks.read(1, 0x1fff) && locks.read(1, 0x2000));
        assert_eq!(locks.end_read(1), None);
        locks.end_write();
        assert!(locks.read(1, 0x1fff));
    }
}
