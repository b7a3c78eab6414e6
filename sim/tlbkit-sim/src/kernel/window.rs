//! Reading a file through windows of the kernel's own addresses: mapped, copied from, unmapped, as a buffer cache does.

use tlbkit::{PAGE_BYTES, VirtAddr};
use tlbkit_pmap::Memory;
use tlbkit_workloads::calls;
use tlbkit_workloads::pattern::file_pattern;

use super::memory::KernelMemory;
use crate::engine::ledger::Cause;
use crate::engine::world::World;
use crate::mmu::{Access, Mode, Overlap};
use crate::run::RunError;

impl World {
    /// Reads `pages` pages of `file`.
    pub(super) fn read_through_window(&'static self, file: u32, pages: u64) {
        calls::windows(pages).for_each(|(first, count)| self.read_window(file, first, count));
    }

    fn read_window(&'static self, file: u32, first: u64, count: u64) {
        let memory = KernelMemory(self);
        self.with_cpu(self.cpu(), |cpu| {
            let frames = (first..first + count).map(|page| memory.file_page(file, page));
            let window = match self.map.map(&cpu, &memory, frames) {
                Ok(Some(window)) => window,
                Ok(None) => self.fail(RunError::Kernel("no window of the kernel's addresses is free".into())),
                Err(error) => self.fail(RunError::Kernel(error.to_string())),
            };
            for page in 0..count {
                self.copy_from(window.va + page * PAGE_BYTES, file_pattern(file, first + page));
            }
            self.insight.begin_kernel_range(self, window.va, count);
            self.map.unmap(&cpu, &memory, window);
            self.insight.end_operation(self);
        });
    }

    /// Copies one page to the program, which must find there what the file holds.
    fn copy_from(&'static self, va: u64, expected: u64) {
        self.sync(self.touch_lookahead());
        let core = self.core();
        let result =
            core.mmu.borrow_mut().translate(VirtAddr(va), Access::Read, Mode::Kernel, Overlap::Independent, &self.phys);
        let Ok(hit) = result else { self.fail(RunError::BadAccess { va }) };
        core.advance_for(Cause::WalkKernel, u64::from(hit.cost.cycles));
        core.advance(self.costs.copy_page);
        let found = self.phys.word(hit.pa);
        if found != expected {
            self.fail(RunError::WrongValue { va, found, expected, cpu: self.cpu() });
        }
    }
}
