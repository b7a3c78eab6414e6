//! [`Os`] as one program sees it: system calls, and real loads and stores.

use core::cell::Cell;

use tlbkit_workloads::calls::TaskRandom;
use tlbkit_workloads::os::{Backing, Channel, FileLimit, Os, Part, Protection, TaskId};
use tlbkit_workloads::{Task, Workload, pattern::PAGE_BYTES};

use super::call::{Call, call};
use super::shared;

/// A task as a program sees it: it makes system calls.
pub(super) struct Program {
    workload: Workload,
    random: Cell<TaskRandom>,
}

impl Program {
    pub(super) const fn new(workload: Workload, random: TaskRandom) -> Self {
        Self { workload, random: Cell::new(random) }
    }
}

/// The checked word of the page at `va`: its first, whatever the offset.
const fn word(va: u64) -> *mut u64 {
    (va & !(PAGE_BYTES - 1)) as *mut u64
}

impl Os for Program {
    fn map_file(&self, file: u32, pages: u64, backing: Backing, protection: Protection) -> u64 {
        call(Call::Map, pages, backing as u64, u64::from(file) << 32 | protection as u64)
    }

    fn unmap(&self, va: u64, pages: u64) {
        call(Call::Unmap, va, pages, 0);
    }

    fn protect(&self, va: u64, pages: u64, protection: Protection) {
        call(Call::Protect, va, pages, protection as u64);
    }

    fn dontneed(&self, va: u64, pages: u64) {
        call(Call::DontNeed, va, pages, 0);
    }

    fn read(&self, va: u64) -> u64 {
        // SAFETY: the program's own memory; a fault is the kernel's to repair or to report.
        unsafe { word(va).read_volatile() }
    }

    fn write(&self, va: u64, value: u64) {
        // SAFETY: as above.
        unsafe { word(va).write_volatile(value) }
    }

    fn chase(&self, va: u64) -> u64 {
        self.read(va)
    }

    fn fork(&self, part: Part) -> TaskId {
        let child = Task { workload: self.workload, part };
        TaskId(call(Call::Fork, (&raw const child) as u64, 0, 0) as u32)
    }

    fn thread(&self, part: Part) -> TaskId {
        let child = Task { workload: self.workload, part };
        TaskId(call(Call::Thread, (&raw const child) as u64, 0, 0) as u32)
    }

    fn exec(&self) {
        call(Call::Exec, 0, 0, 0);
    }

    fn join(&self, task: TaskId) {
        call(Call::Join, u64::from(task.0), 0, 0);
    }

    fn pin(&self, cpu: u32) {
        call(Call::Pin, u64::from(cpu), 0, 0);
    }

    fn wait(&self, channel: Channel) {
        call(Call::Wait, u64::from(channel.0), 0, 0);
    }

    fn post(&self, channel: Channel) {
        call(Call::Post, u64::from(channel.0), 0, 0);
    }

    fn yield_now(&self) {
        call(Call::Yield, 0, 0, 0);
    }

    fn compute(&self, cycles: u64) {
        let until = tlbkit_x86::now_cycles() + cycles * shared::compute_percent() / 100;
        // At least one pause: emulators give another CPU its turn there.
        loop {
            core::hint::spin_loop();
            if tlbkit_x86::now_cycles() >= until {
                return;
            }
        }
    }

    fn read_file(&self, file: u32, pages: u64) {
        call(Call::ReadFile, u64::from(file), pages, 0);
    }

    fn limit_file_pages(&self, limit: FileLimit) {
        call(Call::LimitFilePages, limit.pages, limit.batch, limit.held);
    }

    fn count(&self, units: u64) {
        shared::count(units);
    }

    fn is_over(&self) -> bool {
        shared::is_over()
    }

    fn random(&self) -> u64 {
        let mut random = self.random.get();
        let number = random.next();
        self.random.set(random);
        number
    }

    fn cpus(&self) -> u32 {
        shared::cpus()
    }

    fn wrong_value(&self, va: u64, found: u64, expected: u64) {
        call(Call::WrongValue, va, found, expected);
    }
}
