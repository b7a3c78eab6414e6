//! The locks of its space's regions that a call or a fault holds, from its beginning to its end.

use std::cell::Cell;
use std::ops::Range;

use tlbkit::PAGE_BYTES;

use super::TaskIndex;
use super::mmap_lock::LockMode;
use super::settings::{LockWanted, PerVmaLocks};
use super::state::Kernel;
use super::task::Process;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Nothing,
    Mmap(LockMode),
    Vma,
}

/// The locks that a task holds.
#[must_use = "those that wait for the locks wait for ever unless they are released"]
pub(super) struct HeldLocks {
    kernel: &'static Kernel,
    task: TaskIndex,
    held: Cell<Held>,
}

impl Process {
    fn is_one_region(&self, va: u64, pages: u64) -> bool {
        self.vm.region_at(va).is_some_and(|region| end_of(va, pages) <= region.range().end)
    }
}

/// The end of `pages` pages from `va` on. Both numbers come from a program, so the sum may be too large for a word.
fn end_of(va: u64, pages: u64) -> u64 {
    va.saturating_add(pages.saturating_mul(PAGE_BYTES))
}

impl Kernel {
    /// Takes the lock that the running task wants. The task may sleep, and run on another CPU afterwards.
    pub(super) fn hold_locks(&'static self, task: TaskIndex, wanted: LockWanted) -> HeldLocks {
        let process = self.tasks.get(task).process;
        let hold_mmap = |mode| {
            self.lock_mmap(task, mode);
            Held::Mmap(mode)
        };
        let held = match wanted {
            LockWanted::MmapWrite => hold_mmap(LockMode::Write),
            LockWanted::MmapRead => hold_mmap(LockMode::Read),
            // There is no other thread that could want it.
            LockWanted::VmaRead { .. } if process.threads.get() == 1 => Held::Nothing,
            LockWanted::VmaRead { va, pages } => {
                self.let_threads_catch_up(process);
                let is_held = process.is_one_region(va, pages) && process.vma_locks.read(task, va);
                if is_held { Held::Vma } else { hold_mmap(LockMode::Read) }
            }
        };
        HeldLocks { kernel: self, task, held: Cell::new(held) }
    }
}

impl HeldLocks {
    fn process(&self) -> &'static Process {
        self.kernel.tasks.get(self.task).process
    }

    fn per_vma_locks(&self) -> PerVmaLocks {
        self.kernel.settings.per_vma_locks
    }

    /// Takes the locks of all regions in `range` for writing, if the kernel has per-VMA locks. The caller has the mmap
    /// lock for writing.
    pub(super) fn write_vmas(&self, range: Range<u64>) {
        let (kernel, process) = (self.kernel, self.process());
        if self.per_vma_locks() == PerVmaLocks::Absent || process.threads.get() == 1 {
            return;
        }
        kernel.let_threads_catch_up(process);
        process.vma_locks.write(range);
        while process.vma_locks.are_read() {
            match self.per_vma_locks() {
                // Linux up to 6.14: a semaphore like the mmap lock, so a writer spins for readers, and faults are
                // short. Linux 6.15 and 6.16 sleep here, which this setting cannot say.
                PerVmaLocks::ForFaults => kernel.machine.pause(),
                // Linux since then: a count of readers, the last of whom wakes the writer.
                PerVmaLocks::ForFaultsAndSweeps | PerVmaLocks::Absent => {
                    process.vma_locks.sleep(self.task);
                    kernel.block(self.task);
                }
            }
        }
    }

    /// Takes the locks of all regions that `pages` pages from `va` on touch, as [`write_vmas`](Self::write_vmas) does.
    pub(super) fn write_vmas_of(&self, va: u64, pages: u64) {
        let region_at = |va| self.process().vm.region_at(va).map(|region| region.range());
        let end = end_of(va, pages);
        let begin = region_at(va).map_or(va, |region| region.start);
        let end = region_at(end.saturating_sub(1)).map_or(end, |region| region.end);
        self.write_vmas(begin..end);
    }

    /// Lets readers come while the pages of an unmapped range are swept. Linux removes the regions first, lets readers
    /// come, and then takes out entries and flushes. In `tlbkit-pmap` both are one step, so here readers come shortly
    /// before that step, and spin until it is over. A kernel without per-VMA locks is taken to be too old for that.
    pub(super) fn downgrade(&self) {
        if self.per_vma_locks() != PerVmaLocks::Absent && self.held.get() == Held::Mmap(LockMode::Write) {
            self.held.set(Held::Mmap(LockMode::Read));
            self.end_vma_writes();
            self.kernel.downgrade_mmap(self.task);
        }
    }

    /// Releases a per-VMA lock before the call has ended. The mmap lock is kept until then.
    pub(super) fn release_vma(&self) {
        if self.held.get() == Held::Vma {
            self.held.set(Held::Nothing);
            self.kernel.let_threads_catch_up(self.process());
            let woken = self.process().vma_locks.end_read(self.task);
            woken.inspect(|&writer| self.kernel.make_runnable(writer));
        }
    }

    /// Releases the per-VMA locks that were taken for writing.
    fn end_vma_writes(&self) {
        // A thread that is behind in time must still find them taken.
        self.kernel.let_threads_catch_up(self.process());
        self.process().vma_locks.end_write();
    }

    /// Releases everything, and wakes the tasks that may have it next.
    pub(super) fn release(self) {
        self.release_vma();
        if let Held::Mmap(mode) = self.held.get() {
            if mode == LockMode::Write {
                self.end_vma_writes();
            }
            self.kernel.unlock_mmap(self.task, mode);
        }
    }
}
