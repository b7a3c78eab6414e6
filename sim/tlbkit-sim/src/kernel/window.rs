//! Reading a file: through the kernel's map of all memory, or through windows of its own addresses, mapped, copied from
//! and unmapped, as NetBSD's buffer cache does.

use tlbkit::PAGE_BYTES;
use tlbkit_pmap::Memory;
use tlbkit_workloads::calls;
use tlbkit_workloads::pattern::file_pattern;

use super::memory::KernelMemory;
use super::settings::FileReads;
use super::state::Kernel;
use crate::error::RunError;

impl Kernel {
    /// Reads `pages` pages of `file`.
    pub(super) fn read_file(&'static self, file: u32, pages: u64) {
        match self.settings.file_reads {
            FileReads::DirectMap => self.read_directly(file, pages),
            FileReads::Windows => self.read_through_windows(file, pages),
        }
    }

    /// The map of all memory is made of large global pages: no entry of it is looked up or missed here.
    fn read_directly(&'static self, file: u32, pages: u64) {
        let (machine, memory) = (self.machine, KernelMemory(self));
        for page in 0..pages {
            let at = memory.file_page(file, page);
            machine.execute(machine.costs().copy_page);
            machine.note_pages_filled(machine.cpu(), 2);
            self.check_content(at.0, self.phys.word(at), file_pattern(file, page));
        }
    }

    pub(super) fn read_through_windows(&'static self, file: u32, pages: u64) {
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
        machine.execute(machine.costs().copy_page);
        machine.note_pages_filled(machine.cpu(), 2);
        self.check_content(va, self.phys.word(at), expected);
    }

    /// Checks what a page holds that was read at this address, a virtual one or a physical one.
    fn check_content(&'static self, at: u64, found: u64, expected: u64) {
        if found != expected {
            self.fail(RunError::WrongValue { at, found, expected, cpu: self.machine.cpu() });
        }
    }
}
