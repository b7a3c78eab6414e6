//! Reading a file through windows of the kernel's own addresses: mapped, copied from, unmapped, as a buffer cache does.
//!
//! All policies read files this way, those of kernels too that would copy through their direct map of all memory.

use tlbkit::PAGE_BYTES;
use tlbkit_pmap::Memory;
use tlbkit_workloads::calls;
use tlbkit_workloads::pattern::file_pattern;

use super::memory::KernelMemory;
use super::state::Kernel;
use crate::error::RunError;

impl Kernel {
    /// Reads `pages` pages of `file`.
    pub(super) fn read_file(&'static self, file: u32, pages: u64) {
        let (machine, memory) = (self.machine, KernelMemory(self));
        for (first, count) in calls::windows(pages) {
            let here = machine.cpu();
            machine.with_cpu(here, |cpu| {
                let frames = (first..first + count).map(|page| memory.file_page(file, page));
                let window = match self.map.map(&cpu, &memory, frames) {
                    Ok(Some(window)) => window,
                    Ok(None) => self.fail(RunError::Kernel("no window of the kernel's addresses is free".into())),
                    Err(error) => self.fail(RunError::Kernel(error.to_string())),
                };
                for page in 0..count {
                    self.copy_to_program(window.va + page * PAGE_BYTES, file_pattern(file, first + page));
                }
                self.observer().begin_kernel_range(here, window.va, count);
                self.map.unmap(&cpu, &memory, window);
                self.observer().end_operation(here);
            });
        }
    }

    /// Copies one page to the program, which must find there what the file holds.
    fn copy_to_program(&'static self, va: u64, expected: u64) {
        let machine = self.machine;
        machine.sync(machine.touch_lookahead());
        let Ok(at) = machine.running().load_as_kernel(va, &self.phys) else { self.fail(RunError::BadAccess { va }) };
        machine.running().advance(machine.costs().copy_page);
        let found = self.phys.word(at);
        if found != expected {
            self.fail(RunError::WrongValue { va, found, expected, cpu: machine.cpu() });
        }
    }
}
