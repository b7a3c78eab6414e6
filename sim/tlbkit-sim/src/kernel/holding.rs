//! What a call or a fault holds of the locks of its space's regions, from its beginning to its end.

use std::cell::Cell;
use std::ops::Range;

use tlbkit::PAGE_BYTES;

use super::habits::{RegionLocks, Wants};
use super::regions::Hold;
use super::state::Kernel;
use super::task::Process;
use super::task_index::TaskIndex;

/// What it has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Nothing,
    All(Hold),
    One,
}

/// The locks that a task holds.
#[must_use = "who waits for them waits for ever unless they are let go of"]
pub(super) struct HeldRegions {
    kernel: &'static Kernel,
    process: &'static Process,
    task: TaskIndex,
    held: Cell<Held>,
}

impl Process {
    fn is_one_region(&self, va: u64, pages: u64) -> bool {
        self.vm.region_at(va).is_some_and(|region| end_of(va, pages) <= region.range().end)
    }
}

/// Where so many pages from `va` on end. They are a program's words.
fn end_of(va: u64, pages: u64) -> u64 {
    va.saturating_add(pages.saturating_mul(PAGE_BYTES))
}

impl Kernel {
    /// Takes the lock that the running task wants. It may sleep, and run on another CPU afterwards.
    pub(super) fn hold_regions(&'static self, task: TaskIndex, process: &'static Process, wants: Wants) -> HeldRegions {
        let held = match wants {
            Wants::AllToWrite => self.hold_all(task, process, Hold::Write),
            Wants::AllToRead => self.hold_all(task, process, Hold::Read),
            // Nobody else could want it.
            Wants::PartToRead { .. } if process.threads.get() == 1 => Held::Nothing,
            Wants::PartToRead { va, pages } => {
                self.let_threads_catch_up(process);
                let is_held = process.is_one_region(va, pages) && process.single.read(task, va);
                if is_held { Held::One } else { self.hold_all(task, process, Hold::Read) }
            }
        };
        HeldRegions { kernel: self, process, task, held: Cell::new(held) }
    }

    fn hold_all(&'static self, task: TaskIndex, process: &'static Process, hold: Hold) -> Held {
        self.lock_regions(task, process, hold);
        Held::All(hold)
    }
}

impl HeldRegions {
    /// Who has the lock of all to change regions takes those of single ones in `range` as well, if the kernel has any.
    pub(super) fn write_single(&self, range: Range<u64>) {
        let (kernel, single) = (self.kernel, &self.process.single);
        if kernel.habits.region_locks == RegionLocks::OfAll || self.process.threads.get() == 1 {
            return;
        }
        kernel.let_threads_catch_up(self.process);
        single.write(range);
        while single.are_read() {
            match kernel.habits.region_locks {
                // Linux up to 6.14: a lock as that of all, for whose readers a writer spins. Faults are short. That of
                // 6.15 and 6.16 sleeps here, which this setting does not say.
                RegionLocks::OfOneForFaults => kernel.machine.pause(),
                // Since then: a count of readers. The last of them wakes the writer.
                RegionLocks::OfOne | RegionLocks::OfAll => {
                    single.sleep(self.task);
                    kernel.block(self.task);
                }
            }
        }
    }

    /// The same for the whole regions in which so many pages from `va` on lie.
    pub(super) fn write_regions_of(&self, va: u64, pages: u64) {
        let region_at = |va| self.process.vm.region_at(va).map(|region| region.range());
        let end = end_of(va, pages);
        let begin = region_at(va).map_or(va, |region| region.start);
        let end = region_at(end.saturating_sub(1)).map_or(end, |region| region.end);
        self.write_single(begin..end);
    }

    /// Who unmaps has changed the regions in Linux before it takes entries out and flushes, and lets readers come then.
    /// In `tlbkit-pmap` both are one step, so they come shortly before it, and spin until the entries are out. A kernel
    /// whose faults take no single lock is taken to be too old for that.
    pub(super) fn downgrade(&self) {
        if self.kernel.habits.region_locks != RegionLocks::OfAll && self.held.get() == Held::All(Hold::Write) {
            self.held.set(Held::All(Hold::Read));
            self.end_write();
            self.kernel.downgrade_regions(self.process);
        }
    }

    /// Lets go of the lock of a single region, before what is left to do. That of all is kept.
    pub(super) fn release_single(&self) {
        if self.held.get() == Held::One {
            self.held.set(Held::Nothing);
            self.kernel.let_threads_catch_up(self.process);
            let woken = self.process.single.end_read(self.task);
            woken.inspect(|&writer| self.kernel.make_runnable(writer));
        }
    }

    /// Whoever is behind in time finds the single locks as they were.
    fn end_write(&self) {
        self.kernel.let_threads_catch_up(self.process);
        self.process.single.end_write();
    }

    /// Lets go of everything, and wakes who may have it.
    pub(super) fn release(self) {
        self.release_single();
        if let Held::All(hold) = self.held.get() {
            if hold == Hold::Write {
                self.end_write();
            }
            self.kernel.unlock_regions(self.process, hold);
        }
    }
}
