//! What the machine knows that no kernel can: which interrupts and invalidations were needed.
//!
//! An interrupt is needed only by a CPU that runs the space and holds an entry of the range being changed, in either
//! half of an isolated space, or a cached path through a table that was taken out. A CPU that keeps the space loaded
//! while it idles uses no entry; only the path matters, which its walker may follow at any time. The kernel's own space
//! runs everywhere, under every tag. An invalidation is needed only where it removed something.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};

use serde::Serialize;
use tlbkit::{Event, Pcid, PhysAddr, Stride, VirtAddr};

use super::sizes::FlushSizes;
use crate::engine::ledger::Cause;
use crate::engine::world::World;
use crate::kernel::Running;
use crate::kernel::phys::is_table;
use crate::mmu::{self, Mmu};

/// The first table of the user half lies one frame above the kernel's, and its tag differs in one bit.
const USER_HALF_BYTES: u64 = 4096;
const USER_BIT: u16 = 1 << 11;

/// Needed against done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Needed {
    /// How many were sent or executed.
    pub done: u64,
    /// How many of them perfect knowledge would have kept.
    pub needed: u64,
}

impl Needed {
    fn count(&mut self, needed: u64) {
        self.done += 1;
        self.needed += needed.min(1);
    }
}

/// Counters of flushes and of what they hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FlushCounters {
    /// Flush interrupts.
    pub interrupts: Needed,
    /// INVLPG, and INVPCID of one page.
    pub pages: Needed,
    /// INVPCID of a tag or of all, and CR4.PGE.
    pub everything: Needed,
    /// CR3 writes; needed are those that removed something.
    pub cr3: Needed,
    /// Flushes begun by the protocol.
    pub flushes: u64,
    /// Pages of all flushes that named pages.
    pub flush_pages: u64,
    /// Flushes of everything.
    pub full_flushes: u64,
    /// Interrupts that found their work done.
    pub already_current: u64,
    /// Interrupts for a space that was not loaded.
    pub wrong_space: u64,
    /// Switches that kept the slot's entries.
    pub switches_kept: u64,
    /// Switches that flushed the slot.
    pub switches_flushed: u64,
    /// Processes that ended.
    pub exits: u64,
    /// Flush interrupts sent while a process ended.
    pub exit_interrupts: u64,
    /// Flushes of everything begun while a process ended.
    pub exit_full_flushes: u64,
}

/// Whose mappings an operation changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// The space with its first table there.
    Space(PhysAddr),
    /// The kernel: every space contains them.
    Kernel,
}

/// What the CPU does to which an interrupt goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// It runs a program.
    Runs,
    /// It idles, whatever it has loaded.
    Idles,
}

/// What a CPU is changing.
#[derive(Clone, Debug)]
struct Operation {
    owner: Owner,
    range: Option<(u64, u64)>,
    unhooked: Vec<PhysAddr>,
}

/// What one run knows.
pub(crate) struct Insight {
    counters: Cell<FlushCounters>,
    operations: RefCell<Vec<Option<Operation>>>,
    begun: RefCell<Vec<(Option<u32>, u64)>>,
    /// CPUs on which a process is ending.
    ending: RefCell<Vec<bool>>,
    sizes: RefCell<FlushSizes>,
}

impl Insight {
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            counters: Cell::default(),
            operations: RefCell::new(vec![None; cpus]),
            begun: RefCell::new(vec![(None, 0); cpus]),
            ending: RefCell::new(vec![false; cpus]),
            sizes: RefCell::default(),
        }
    }

    pub(crate) fn counters(&self) -> FlushCounters {
        self.counters.get()
    }

    pub(crate) fn sizes(&self) -> FlushSizes {
        self.sizes.borrow().clone()
    }

    /// The running CPU begins to change `pages` pages from `va` of the space at `root`.
    pub(crate) fn begin_range(&self, world: &World, root: PhysAddr, va: u64, pages: u64) {
        self.begin(world, Operation { owner: Owner::Space(root), range: Some((va, pages)), unhooked: Vec::new() });
    }

    /// The running CPU begins to change all of the space at `root`.
    pub(crate) fn begin_everything(&self, world: &World, root: PhysAddr) {
        self.begin(world, Operation { owner: Owner::Space(root), range: None, unhooked: Vec::new() });
    }

    /// The running CPU begins to change `pages` pages from `va` of the kernel's own.
    pub(crate) fn begin_kernel_range(&self, world: &World, va: u64, pages: u64) {
        self.begin(world, Operation { owner: Owner::Kernel, range: Some((va, pages)), unhooked: Vec::new() });
    }

    fn begin(&self, world: &World, operation: Operation) {
        if let Some(cpu) = world.running_cpu() {
            self.operations.borrow_mut()[cpu] = Some(operation);
        }
    }

    /// It has finished.
    pub(crate) fn end_operation(&self, world: &World) {
        if let Some(cpu) = world.running_cpu() {
            self.operations.borrow_mut()[cpu] = None;
        }
    }

    /// A process begins to end on the running CPU, which does nothing else until [`end_exit`](Self::end_exit).
    pub(crate) fn begin_exit(&self, world: &World, root: PhysAddr) {
        self.begin_everything(world, root);
        self.count(|counters| counters.exits += 1);
        self.set_ending(world, true);
    }

    /// It has ended.
    pub(crate) fn end_exit(&self, world: &World) {
        self.set_ending(world, false);
        self.end_operation(world);
    }

    fn set_ending(&self, world: &World, ending: bool) {
        if let Some(cpu) = world.running_cpu() {
            self.ending.borrow_mut()[cpu] = ending;
        }
    }

    fn is_ending(&self, world: &World) -> bool {
        world.running_cpu().is_some_and(|cpu| self.ending.borrow()[cpu])
    }

    /// A page-table entry changed: was a table taken out?
    pub(crate) fn entry_changed(&self, world: &World, before: u64, after: u64) {
        let table = PhysAddr(before & 0x000f_ffff_ffff_f000);
        if before & 1 == 1 && is_table(table) && after & 1 == 0 {
            let mut operations = self.operations.borrow_mut();
            if let Some(operation) = world.running_cpu().and_then(|cpu| operations[cpu].as_mut()) {
                operation.unhooked.push(table);
            }
        }
    }

    /// An interrupt goes to `to`.
    pub(crate) fn ipi(&self, world: &World, to: usize) {
        let operations = self.operations.borrow();
        let operation = world.running_cpu().and_then(|cpu| operations[cpu].as_ref());
        let mmu = world.cores[to].mmu.borrow();
        let idles = world.kernel.runs[to].running.get() == Running::Idle;
        let by = if idles { Use::Idles } else { Use::Runs };
        let needed = operation.is_some_and(|operation| operation.concerns(&mmu, by));
        let ending = self.is_ending(world);
        self.count(|counters| {
            counters.interrupts.count(u64::from(needed));
            counters.exit_interrupts += u64::from(ending);
        });
    }

    /// Executes an invalidation of one page.
    pub(crate) fn page(&self, mmu: &mut Mmu, flush: impl FnOnce(&mut Mmu)) {
        let before = lost_by_name(mmu);
        flush(mmu);
        let lost = lost_by_name(mmu) - before;
        self.count(|counters| counters.pages.count(lost));
    }

    /// Executes a flush of a tag or of everything.
    pub(crate) fn everything(&self, mmu: &mut Mmu, flush: impl FnOnce(&mut Mmu)) {
        let lost = lost_by(mmu, flush);
        self.count(|counters| counters.everything.count(lost));
    }

    /// Executes a CR3 write.
    pub(crate) fn cr3(&self, mmu: &mut Mmu, flush: impl FnOnce(&mut Mmu)) {
        let lost = lost_by(mmu, flush);
        self.count(|counters| counters.cr3.count(lost));
    }

    /// The protocol says that something happened.
    pub(crate) fn event(&self, world: &World, cpu: usize, event: Event) {
        match event {
            Event::FlushBegin(pages) => self.begin_flush(world, cpu, (pages != u32::MAX).then_some(pages)),
            Event::FlushLocalDone => self.end_local(world, cpu),
            Event::SwitchKept => self.count(|counters| counters.switches_kept += 1),
            Event::SwitchFlushed => self.count(|counters| counters.switches_flushed += 1),
            Event::AlreadyCurrent => self.count(|counters| counters.already_current += 1),
            Event::WrongSpace => self.count(|counters| counters.wrong_space += 1),
            _ => {}
        }
    }

    fn begin_flush(&self, world: &World, cpu: usize, pages: Option<u32>) {
        let ending = self.ending.borrow()[cpu];
        self.count(|counters| {
            counters.flushes += 1;
            if let Some(pages) = pages {
                counters.flush_pages += u64::from(pages);
            } else {
                counters.full_flushes += 1;
                counters.exit_full_flushes += u64::from(ending);
            }
        });
        self.begun.borrow_mut()[cpu] = (pages, local_cycles(world, cpu) - world.costs.flush_entry);
    }

    fn end_local(&self, world: &World, cpu: usize) {
        let (pages, before) = self.begun.borrow()[cpu];
        self.sizes.borrow_mut().add(pages, local_cycles(world, cpu) - before);
    }

    fn count(&self, count: impl FnOnce(&mut FlushCounters)) {
        let mut counters = self.counters.get();
        count(&mut counters);
        self.counters.set(counters);
    }
}

impl Operation {
    /// True if the CPU would go wrong without the interrupt.
    fn concerns(&self, mmu: &Mmu, by: Use) -> bool {
        match self.owner {
            Owner::Kernel => self.holds_global(mmu) || mmu.tags().any(|tag| self.holds(mmu, tag)),
            Owner::Space(root) => {
                let loaded = mmu.cr3().root();
                if loaded != root && loaded.0 != root.0 + USER_HALF_BYTES {
                    return false;
                }
                let halves = [mmu.pcid(), Pcid(mmu.pcid().0 ^ USER_BIT)];
                halves.into_iter().any(|tag| {
                    by == Use::Runs && self.holds(mmu, tag)
                        || self.unhooked.iter().any(|&table| mmu.holds_path(tag, table))
                })
            }
        }
    }

    fn holds(&self, mmu: &Mmu, tag: Pcid) -> bool {
        match self.range {
            Some((va, pages)) => mmu.holds(tag, VirtAddr(va), pages, Stride::Page4K),
            None => mmu.holds_any(tag),
        }
    }

    fn holds_global(&self, mmu: &Mmu) -> bool {
        self.range.is_some_and(|(va, pages)| mmu.holds_global(VirtAddr(va), pages, Stride::Page4K))
    }
}

/// Cycles so far of the local halves of flushes.
fn local_cycles(world: &World, cpu: usize) -> u64 {
    world.cores[cpu].ledger.borrow().of(Cause::FlushLocal)
}

/// Entries that went because their page was named. What a fractured TLB loses besides made no invalidation needed.
fn lost_by_name(mmu: &Mmu) -> u64 {
    let lost = &mmu.counters().lost;
    [mmu::LossCause::Invlpg, mmu::LossCause::Invpcid].into_iter().map(|cause| lost[cause].l1 + lost[cause].stlb).sum()
}

/// Entries that `flush` removed.
fn lost_by(mmu: &mut Mmu, flush: impl FnOnce(&mut Mmu)) -> u64 {
    let before = mmu.live_entries();
    flush(mmu);
    let after = mmu.live_entries();
    u64::from(before.0.saturating_sub(after.0) + before.1.saturating_sub(after.1))
}
