//! Physical memory as the simulated kernel uses it: each access takes simulated time, and other CPUs see it.

use tlbkit::{PhysAddr, Sharers};
use tlbkit_arch::Pte;
use tlbkit_pmap::{Frame, Memory, Purpose};

use super::lru_lists::{Holds, TakenOut};
use super::phys::{MOST_DATA_GIB, is_table};
use super::state::Kernel;
use crate::error::RunError;
use crate::mmu::Tables;

/// log2 of a base page's bytes.
const BASE_SHIFT: u8 = 12;

/// Physical memory as one kernel uses it.
#[derive(Clone, Copy)]
pub(super) struct KernelMemory(pub(super) &'static Kernel);

impl KernelMemory {
    #[inline(always)]
    fn charge(self, cycles: u64) {
        self.charge_each(cycles, 1);
    }

    /// Charges `cycles` that many `times`.
    #[inline(always)]
    fn charge_each(self, cycles: u64, times: u64) {
        let machine = self.0.machine;
        if let Some(cpu) = machine.running_cpu() {
            machine.processor(cpu).work(times * machine.shared_cycles(cpu, cycles));
        }
    }

    /// A page was allocated for a program, and goes into the lists.
    fn list(self) {
        if let Some(cpu) = self.0.machine.running_cpu() {
            self.hold_lru_lists(self.0.lru.add(cpu));
        }
    }

    /// A range is about to be swept.
    pub(super) fn begin_sweep(self) {
        self.hold_lru_lists(self.0.lru.begin_sweep(self.0.machine.cpu()));
    }

    /// A page of a program comes out of the lists.
    fn unlist(self) {
        let machine = self.0.machine;
        let Some(cpu) = machine.running_cpu() else { return };
        match self.0.lru.take_out(cpu) {
            TakenOut::Later => {}
            TakenOut::Hold(work) => machine.change_lru_lists(work),
            TakenOut::More(work) => machine.go_on_with_lru_lists(work),
        }
    }

    fn hold_lru_lists(self, holds: Holds) {
        holds.into_iter().flatten().for_each(|work| self.0.machine.change_lru_lists(work));
    }

    /// Notes that `pages` pages came through the caches of the running CPU.
    fn note_filled(self, pages: u64) {
        if let Some(cpu) = self.0.machine.running_cpu() {
            self.0.machine.note_pages_filled(cpu, pages);
        }
    }

    /// Before a change that the walkers of other CPUs can see: CPUs that are behind in time act first.
    fn visible(self, at: PhysAddr) {
        let machine = self.0.machine;
        if is_table(at) && machine.running_cpu().is_some() {
            self.charge(machine.costs().pte_access);
            machine.sync(0);
        }
    }

    /// After a change of an entry. If it took out a table, the observer is told. If it took out a page, what a kernel
    /// does besides for that page is charged here, and not where its frame is freed, as many frames are freed at once.
    fn changed(self, at: PhysAddr, before: u64, after: u64) {
        if let Some(cpu) = self.0.machine.running_cpu().filter(|_| is_table(at)) {
            self.0.observer().entry_changed(cpu, Pte(before), Pte(after));
        }
        let is_taken_out = is_table(at) && before & Pte::PRESENT != 0 && after & Pte::PRESENT == 0;
        let Some(cpu) = self.0.machine.running_cpu().filter(|_| is_taken_out) else { return };
        let taken_out = PhysAddr(before & Pte::ADDRESS);
        if is_table(taken_out) {
            self.0.observer().table_unhooked(cpu, taken_out);
        } else {
            self.charge(self.0.machine.costs().give_back_page);
        }
    }
}

impl Kernel {
    /// Ends the run, as programs and files take more memory than there is.
    pub(super) fn fail_without_frame(&self) -> ! {
        let why = format!("no frame left: pages of programs and files may take {MOST_DATA_GIB} GiB in all");
        self.fail(RunError::Kernel(why));
    }
}

impl Memory for KernelMemory {
    #[inline]
    fn load(&self, at: PhysAddr) -> u64 {
        if !is_table(at) {
            return self.0.phys.word(at);
        }
        self.charge(self.0.machine.costs().pte_access);
        self.0.phys.read(at)
    }

    fn store(&self, at: PhysAddr, value: u64) {
        self.swap(at, value);
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.visible(at);
        let before = self.0.phys.swap(at, value);
        self.changed(at, before, value);
        before
    }

    fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<u64, u64> {
        self.visible(at);
        let before = self.0.phys.compare_exchange(at, current, new)?;
        self.changed(at, before, new);
        Ok(before)
    }

    fn copy(&self, from: PhysAddr, to: PhysAddr, shift: u8) {
        self.charge(self.0.machine.costs().copy_page << (shift - 12));
        self.note_filled(2 << (shift - 12));
        self.0.phys.copy(from, to, shift);
    }

    /// If there is no frame, nothing is zeroed, and nothing goes into the lists.
    fn alloc(&self, shift: u8, purpose: Purpose) -> Option<Frame> {
        let frame = self.0.phys.alloc(shift, purpose)?;
        if purpose != Purpose::Copy {
            self.charge(self.0.machine.costs().zero_page << (shift - 12));
            self.note_filled(1 << (shift - 12));
        }
        if purpose != Purpose::Table && shift == BASE_SHIFT {
            self.list();
        }
        Some(frame)
    }

    fn free(&self, frame: Frame) {
        if !is_table(frame.at) && frame.shift == BASE_SHIFT {
            self.unlist();
        }
        self.0.phys.free(frame);
    }

    fn is_low(&self) -> bool {
        self.0.phys.is_low()
    }

    fn share(&self, at: PhysAddr) {
        self.0.phys.share(at);
    }

    fn release(&self, at: PhysAddr) -> bool {
        self.0.phys.release(at)
    }

    fn references(&self, at: PhysAddr) -> u32 {
        self.0.phys.references(at)
    }

    fn sharers(&self, table: PhysAddr) -> Option<&Sharers> {
        self.0.phys.sharers(table)
    }

    fn adopt_root(&self, root: PhysAddr, space: PhysAddr) {
        self.0.observer().root_is_of(root, space);
    }

    fn split(&self, at: PhysAddr) {
        self.0.phys.split(at);
    }

    fn file_page(&self, file: u32, index: u64) -> PhysAddr {
        let reclaimer = &self.0.reclaimer;
        if reclaimer.is_limited() && !self.0.phys.has_page((file, index)) {
            self.charge(self.0.machine.costs().copy_page);
            self.note_filled(1);
            reclaimer.read((file, index));
        }
        self.0.phys.page_of_file(file, index).unwrap_or_else(|| self.0.fail_without_frame())
    }

    fn zero_page(&self) -> PhysAddr {
        self.0.phys.zero_page()
    }

    /// Loads let time pass and nothing else, so many at once are as good as one after the other.
    fn pass_empty(&self, at: PhysAddr, most: u64, loads: u32) -> u64 {
        let empty = self.0.phys.count_empty(at, most);
        self.charge_each(self.0.machine.costs().pte_access, empty * u64::from(loads));
        empty
    }

    fn fault_around(&self) -> u64 {
        // Only pages that are in memory are mapped around, and where it is short those are that are read ahead.
        self.0.reclaimer.pages_of_fault(self.0.settings.fault_around)
    }
}
