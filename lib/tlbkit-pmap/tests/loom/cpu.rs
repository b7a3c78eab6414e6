//! One CPU: what its program does, and the door through which the protocol reaches its TLB.

use loom::thread;
use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, CpuId, Cr3, Destroyed, Event, Features, Hardware, Invpcid, IrqsOff, SpaceToken, VirtAddr};
use tlbkit_arch::addr::TOP_LEVEL;
use tlbkit_arch::{Pte, WalkStep, entry_at};
use tlbkit_pmap::{Access, Backing, Fault, Memory, Protection, Purpose};

use crate::core::{Core, Entry};
use crate::machine::Machine;

/// A CPU; a thread of loom holds it.
pub(crate) struct Cpu {
    pub(crate) machine: &'static Machine,
    index: usize,
}

impl Cpu {
    pub(crate) fn new(machine: &'static Machine, index: usize) -> Self {
        Self { machine, index }
    }

    pub(crate) fn protocol(&self) -> tlbkit::Cpu<'_, 'static, Self> {
        self.machine.tlb.cpu(CpuId(self.index as u32), self)
    }

    fn core(&self) -> &Core {
        &self.machine.cores[self.index]
    }

    pub(crate) fn bring_up(&self) {
        self.with_irqs_off(|irqs| self.protocol().bring_up(irqs));
    }

    /// Runs the space from now on.
    pub(crate) fn switch(&self) {
        self.with_irqs_off(|irqs| self.protocol().switch_to(self.machine.vm.space(), irqs));
    }

    /// Runs no program any more; the space may stay loaded.
    pub(crate) fn lazy(&self) {
        self.with_irqs_off(|irqs| self.protocol().enter_lazy(irqs));
    }

    /// Leaves the space for good.
    pub(crate) fn load_kernel(&self) {
        self.with_irqs_off(|irqs| self.protocol().load_kernel(irqs));
        self.reclaim_if_last();
    }

    /// Ends the space, which this CPU runs as the only one.
    pub(crate) fn end(&self) {
        let (vm, mem) = (&self.machine.vm, self.machine.mem);
        mem.has_one_user.set(true);
        vm.exit(&self.protocol(), mem);
        self.load_kernel();
        if vm.destroy(&self.protocol(), mem) == Destroyed::Now {
            self.machine.is_ended.set(true);
        }
    }

    /// Frees the space if the protocol has said that nobody holds it any more.
    fn reclaim_if_last(&self) {
        if self.core().was_last.take() {
            self.machine.vm.reclaim(self.machine.mem);
            self.machine.is_ended.set(true);
        }
    }

    /// Maps `pages` writable pages; their first address.
    pub(crate) fn map(&self, pages: u64) -> u64 {
        self.machine.vm.map(&self.protocol(), pages, Backing::AnonPrivate, Protection::ReadWrite).expect("room")
    }

    /// Maps `pages` pages, runs the space and stores to the first, whose translation it then holds; its address.
    pub(crate) fn map_and_store(&self, pages: u64) -> u64 {
        let va = self.map(pages);
        self.switch();
        self.store(va);
        va
    }

    /// Gives one page back.
    pub(crate) fn give_back(&self, va: u64) {
        self.machine.vm.dontneed(&self.protocol(), self.machine.mem, va, 1).expect("mapped");
    }

    /// Unmaps one page.
    pub(crate) fn unmap(&self, va: u64) {
        self.machine.vm.unmap(&self.protocol(), self.machine.mem, va, 1).expect("mapped");
    }

    /// Unmaps one page and interrupts nobody for it, then waits for the grace period.
    pub(crate) fn retire(&self, va: u64) {
        let (cpu, machine) = (self.protocol(), self.machine);
        // As it enters the kernel: what comes later finds nothing to pass, and so orders nothing.
        self.with_irqs_off(|irqs| machine.periods.pass(&cpu, irqs));
        let retired = machine.vm.unmap_and_retire(&cpu, machine.mem, &machine.periods, va, 1).expect("mapped");
        retired.into_iter().for_each(|retired| retired.finish(&cpu, machine.mem, &machine.periods, &machine.vm));
    }

    /// Maps a frame at `va` that nobody has stored to.
    pub(crate) fn enter_clean(&self, va: u64) {
        self.enter(va, Pte::ACCESSED);
    }

    /// The same of a frame that nobody has accessed.
    pub(crate) fn enter_unaccessed(&self, va: u64) {
        self.enter(va, 0);
    }

    fn enter(&self, va: u64, accessed: u64) {
        let frame = self.machine.mem.alloc(12, Purpose::Data).expect("memory");
        let bits = Pte::PRESENT | Pte::WRITE | Pte::USER | accessed;
        self.machine.vm.enter(&self.protocol(), self.machine.mem, va, frame, bits).expect("memory");
    }

    /// The entry that maps `va`.
    pub(crate) fn entry(&self, va: u64) -> Option<Pte> {
        self.machine.vm.extract(&self.protocol(), self.machine.mem, va).map(|(_, pte)| pte)
    }

    /// The program stores, after a fault if need be.
    pub(crate) fn store(&self, va: u64) {
        while !self.try_store(va) {
            let fault = self.machine.vm.fault(&self.protocol(), self.machine.mem, va, Access::Write);
            assert!(matches!(fault, Fault::Mapped { .. } | Fault::Spurious), "{fault:?}");
        }
    }

    /// The kernel's own half, or the program's, read through the tables that are loaded.
    pub(crate) fn walk(&self, va: u64) -> bool {
        self.poll();
        let (mem, mut table, mut level) = (self.machine.mem, self.core().cr3.get().root(), TOP_LEVEL);
        loop {
            let at = entry_at(table, VirtAddr(va), level);
            let pte = Pte(mem.load(at));
            match pte.step(level) {
                WalkStep::NotPresent => return false,
                WalkStep::Table(next) => (table, level) = (next, level - 1),
                // An entry that has changed meanwhile is looked at again.
                WalkStep::Page(..) if !pte.has(Pte::ACCESSED) && !mem.set_bit(at, pte.0, Pte::ACCESSED) => {}
                WalkStep::Page(frame, _) => {
                    let frame = mem.frame(frame);
                    frame.touch();
                    self.core().entries.borrow_mut().push(Entry { va, frame, at, pte });
                    return true;
                }
            }
        }
    }

    fn try_store(&self, va: u64) -> bool {
        self.poll();
        let is_cached = || self.core().entries.borrow().iter().any(|entry| entry.va == va);
        is_cached() || self.walk(va)
    }

    /// A store through a cached translation whose entry is still clean: the walker sets the dirty bit, if the entry
    /// still is what was cached. True if the program has stored.
    pub(crate) fn store_to_clean(&self, va: u64) -> bool {
        let entries = self.core().entries.borrow();
        let cached = entries.iter().find(|entry| entry.va == va);
        cached.is_some_and(|entry| self.machine.mem.set_bit(entry.at, entry.pte.0, Pte::DIRTY))
    }

    /// The program has ended: answers interrupts until all programs have.
    pub(crate) fn rest(&self) {
        let busy = &self.machine.busy;
        busy.set(busy.get() - 1);
        while busy.get() != 0 {
            self.poll();
            thread::yield_now();
        }
    }

    fn poll(&self) {
        if self.core().are_irqs_on.get() && self.core().line.take() {
            self.with_irqs_off(|irqs| self.protocol().answer(irqs));
            self.reclaim_if_last();
        }
    }

    /// Uses all that is cached for the last time.
    fn drop_entries(&self) {
        for entry in self.core().entries.take() {
            entry.frame.touch();
            self.machine.address.with(|_| ());
        }
    }
}

impl Hardware for Cpu {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    fn features(&self) -> Features {
        Features { pcid: false, invpcid: false }
    }

    fn write_cr3(&self, cr3: Cr3) {
        self.drop_entries();
        let left = self.core().cr3.replace(cr3).root();
        // The walker may read a table as long as it is loaded.
        if left.0 != 0 {
            self.machine.mem.frame(left).touch();
        }
    }

    fn invlpg(&self, _va: VirtAddr) {
        self.drop_entries();
    }

    fn invpcid(&self, _what: Invpcid) {
        self.drop_entries();
    }

    fn toggle_pge(&self) {
        self.drop_entries();
    }

    fn send_ipi(&self, to: CpuId) {
        self.machine.cores[to.0 as usize].line.raise();
    }

    fn send_ipi_to_others(&self) {
        self.send_ipi(CpuId(1 - self.index as u32));
    }

    fn relax(&self) {
        self.poll();
        thread::yield_now();
    }

    fn irqs_enabled(&self) -> bool {
        self.core().are_irqs_on.get()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let were_on = self.core().are_irqs_on.replace(false);
        let result = f(&IrqsOff::assume());
        self.core().are_irqs_on.set(were_on);
        result
    }

    fn with_space_of<R>(&self, _token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(self.machine.vm.space())
    }

    fn event(&self, event: Event) {
        if matches!(event, Event::LastLazyReference(_)) {
            self.core().was_last.set(true);
        }
    }

    fn now_cycles(&self) -> u64 {
        0
    }
}
