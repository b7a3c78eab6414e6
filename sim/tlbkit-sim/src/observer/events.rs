//! What machine and kernel tell the observer, and the totals that it keeps.

use std::cell::{Cell, RefCell};
use std::mem;

use serde::{Deserialize, Serialize};
use tlbkit::{Event, PhysAddr};

use super::clairvoyant::{Operation, Owner, lost_by, lost_by_name};
use super::flushes::{FlushCounters, FlushSize, FlushSizes};
use super::ledger::Class;
use super::samples::{Sample, Samples};
use crate::mmu::Mmu;

/// Interrupts of all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct IpiCounters {
    /// Requests to other CPUs to answer, each target counted.
    pub sent: u64,
    /// Requests answered.
    pub received: u64,
    /// Idle CPUs woken by an interrupt.
    pub wakes_sent: u64,
    /// Writes of an interrupt command, for requests and wake-ups: one can reach several CPUs.
    pub commands: u64,
    /// Cycles that senders waited for their last command to be accepted.
    pub pending_cycles: u64,
}

/// What the kernel counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KernelCounters {
    /// System calls.
    pub syscalls: u64,
    /// Page faults.
    pub faults: u64,
    /// Switches between tasks, or from a task to the idle thread and back.
    pub switches: u64,
    /// Tasks woken on another CPU than the one that woke them.
    pub remote_wakes: u64,
    /// Tasks that lost their CPU to another at the end of a time slice.
    pub preemptions: u64,
    /// Tasks that a balancer moved to another CPU while they ran.
    pub moves: u64,
    /// Processes and threads started.
    pub tasks: u64,
}

/// What the kernel does, once each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelEvent {
    Syscall,
    Fault,
    Switch,
    RemoteWake,
    Preemption,
    Move,
    TaskStart,
}

/// The flush that a CPU began last: its pages, none for everything, and whether its local half is to come.
#[derive(Clone, Copy, Debug, Default)]
struct BegunFlush {
    pages: Option<u32>,
    is_to_be_sized: bool,
}

/// What the observer follows on one CPU.
#[derive(Clone, Debug, Default)]
struct OnCpu {
    /// What the CPU is changing.
    operation: Option<Operation>,
    begun: BegunFlush,
    /// What the local halves that are over have cost the CPU.
    sized_cycles: u64,
    /// Whether a process is ending there.
    is_ending: bool,
}

/// What was seen of one run.
pub(crate) struct Observer {
    flushes: Cell<FlushCounters>,
    sizes: RefCell<FlushSizes>,
    ipis: Cell<IpiCounters>,
    kernel: Cell<KernelCounters>,
    score: Cell<u64>,
    samples: Samples,
    cpus: RefCell<Vec<OnCpu>>,
}

/// What the kernel tells.
impl Observer {
    /// `sample_cycles` is how often the score is noted, if at all.
    pub(crate) fn new(cpus: usize, sample_cycles: Option<u64>) -> Self {
        Self {
            flushes: Cell::default(),
            sizes: RefCell::default(),
            ipis: Cell::default(),
            kernel: Cell::default(),
            score: Cell::new(0),
            samples: Samples::new(sample_cycles),
            cpus: RefCell::new(vec![OnCpu::default(); cpus]),
        }
    }

    /// The kernel did something.
    pub(crate) fn kernel_event(&self, event: KernelEvent) {
        let mut counters = self.kernel.get();
        let counter = match event {
            KernelEvent::Syscall => &mut counters.syscalls,
            KernelEvent::Fault => &mut counters.faults,
            KernelEvent::Switch => &mut counters.switches,
            KernelEvent::RemoteWake => &mut counters.remote_wakes,
            KernelEvent::Preemption => &mut counters.preemptions,
            KernelEvent::Move => &mut counters.moves,
            KernelEvent::TaskStart => &mut counters.tasks,
        };
        *counter += 1;
        self.kernel.set(counters);
    }

    /// The benchmark counted so many units more, at `now`.
    pub(crate) fn scored(&self, units: u64, now: u64) {
        self.score.set(self.score.get() + units);
        self.samples.look(now, self.score.get());
    }

    /// The CPU begins to change `pages` pages from `va` of the space at `root`.
    pub(crate) fn begin_range(&self, cpu: usize, root: PhysAddr, va: u64, pages: u64) {
        self.begin(cpu, Operation::new(Owner::Space(root), Some((va, pages))));
    }

    /// The CPU begins to change all of the space at `root`.
    pub(crate) fn begin_everything(&self, cpu: usize, root: PhysAddr) {
        self.begin(cpu, Operation::new(Owner::Space(root), None));
    }

    /// The CPU begins to change `pages` pages from `va` of the kernel's own.
    pub(crate) fn begin_kernel_range(&self, cpu: usize, va: u64, pages: u64) {
        self.begin(cpu, Operation::new(Owner::Kernel, Some((va, pages))));
    }

    fn begin(&self, cpu: usize, operation: Operation) {
        self.cpus.borrow_mut()[cpu].operation = Some(operation);
    }

    /// The CPU has finished what it began to change.
    pub(crate) fn end_operation(&self, cpu: usize) {
        self.cpus.borrow_mut()[cpu].operation = None;
    }

    /// A process begins to end on the CPU, which does nothing else until [`end_exit`](Self::end_exit).
    pub(crate) fn begin_exit(&self, cpu: usize, root: PhysAddr) {
        self.begin_everything(cpu, root);
        self.cpus.borrow_mut()[cpu].is_ending = true;
        self.count(|counters| counters.exits += 1);
    }

    /// The process has ended.
    pub(crate) fn end_exit(&self, cpu: usize) {
        self.cpus.borrow_mut()[cpu].is_ending = false;
        self.end_operation(cpu);
    }

    /// The CPU took the table at `at` out of the page tables.
    pub(crate) fn table_unhooked(&self, cpu: usize, at: PhysAddr) {
        if let Some(operation) = &mut self.cpus.borrow_mut()[cpu].operation {
            operation.note_unhooked(at);
        }
    }
}

/// What the machine tells.
impl Observer {
    /// The CPU sends a flush interrupt to one that has `to_mmu` and runs `to_class`.
    pub(crate) fn flush_interrupt_sent(&self, cpu: usize, to_mmu: &Mmu, to_class: Class) {
        let cpus = self.cpus.borrow();
        let OnCpu { operation, is_ending, .. } = &cpus[cpu];
        let is_needed = operation.as_ref().is_some_and(|operation| operation.concerns(to_mmu, to_class));
        self.count(|counters| {
            counters.interrupts.count(u64::from(is_needed));
            counters.exit_interrupts += u64::from(*is_ending);
        });
        self.count_ipi(|ipis| ipis.sent += 1);
    }

    /// A CPU took a flush interrupt.
    pub(crate) fn flush_interrupt_taken(&self) {
        self.count_ipi(|ipis| ipis.received += 1);
    }

    /// A CPU wrote an interrupt command, after it had waited so many cycles for the one before.
    pub(crate) fn command_written(&self, waited_cycles: u64) {
        self.count_ipi(|ipis| {
            ipis.commands += 1;
            ipis.pending_cycles += waited_cycles;
        });
    }

    /// A CPU sent an interrupt to wake an idle one.
    pub(crate) fn wake_sent(&self) {
        self.count_ipi(|ipis| ipis.wakes_sent += 1);
    }

    /// A CPU executes an invalidation of one page.
    pub(crate) fn page_invalidation(&self, mmu: &mut Mmu, flush: impl FnOnce(&mut Mmu)) {
        let before = lost_by_name(mmu);
        flush(mmu);
        let lost = lost_by_name(mmu) - before;
        self.count(|counters| counters.pages.count(lost));
    }

    /// A CPU executes a flush of a tag or of everything.
    pub(crate) fn full_invalidation(&self, mmu: &mut Mmu, flush: impl FnOnce(&mut Mmu)) {
        let lost = lost_by(mmu, flush);
        self.count(|counters| counters.everything.count(lost));
    }

    /// A CPU executes a CR3 write.
    pub(crate) fn cr3_write(&self, mmu: &mut Mmu, write: impl FnOnce(&mut Mmu)) {
        let lost = lost_by(mmu, write);
        self.count(|counters| counters.cr3.count(lost));
    }

    /// The protocol says that something happened on the CPU; `local_cycles` is what the local halves of flushes have
    /// cost it so far, this event not included.
    pub(crate) fn protocol_event(&self, cpu: usize, event: Event, local_cycles: u64) {
        match event {
            Event::FlushBegin(pages) => {
                let mut cpus = self.cpus.borrow_mut();
                let on_cpu = &mut cpus[cpu];
                let pages = (pages != u32::MAX).then_some(pages);
                on_cpu.begun = BegunFlush { pages, is_to_be_sized: true };
                self.count(|counters| {
                    counters.flushes += 1;
                    if let Some(pages) = pages {
                        counters.flush_pages += u64::from(pages);
                    } else {
                        counters.full_flushes += 1;
                        counters.exit_full_flushes += u64::from(on_cpu.is_ending);
                    }
                });
            }
            Event::FlushLocalDone => {
                let on_cpu = &mut self.cpus.borrow_mut()[cpu];
                let cycles = local_cycles - mem::replace(&mut on_cpu.sized_cycles, local_cycles);
                // A flush that was issued and is asked for by its wait has a second local half, and is one flush.
                let flushes = u64::from(mem::take(&mut on_cpu.begun.is_to_be_sized));
                self.sizes.borrow_mut().add(on_cpu.begun.pages, flushes, cycles);
            }
            Event::Chosen { skipped, .. } => self.count(|counters| counters.left_alone += u64::from(skipped)),
            Event::SwitchKept => self.count(|counters| counters.switches_kept += 1),
            Event::SwitchFlushed => self.count(|counters| counters.switches_flushed += 1),
            Event::AlreadyCurrent => self.count(|counters| counters.already_current += 1),
            Event::WrongSpace => self.count(|counters| counters.wrong_space += 1),
            _ => {}
        }
    }

    fn count(&self, count: impl FnOnce(&mut FlushCounters)) {
        let mut counters = self.flushes.get();
        count(&mut counters);
        self.flushes.set(counters);
    }

    fn count_ipi(&self, count: impl FnOnce(&mut IpiCounters)) {
        let mut counters = self.ipis.get();
        count(&mut counters);
        self.ipis.set(counters);
    }
}

/// What came out.
impl Observer {
    /// Flushes, and what perfect knowledge would have left out.
    pub(crate) fn flushes(&self) -> FlushCounters {
        self.flushes.get()
    }

    /// Flushes by size.
    pub(crate) fn sizes(&self) -> Vec<FlushSize> {
        self.sizes.borrow().all()
    }

    /// The counters of interrupts.
    pub(crate) fn ipis(&self) -> IpiCounters {
        self.ipis.get()
    }

    /// What the kernel did.
    pub(crate) fn kernel(&self) -> KernelCounters {
        self.kernel.get()
    }

    /// What the benchmark counted.
    pub(crate) fn score(&self) -> u64 {
        self.score.get()
    }

    /// The score as time went by; a second call finds none.
    pub(crate) fn take_samples(&self) -> Vec<Sample> {
        self.samples.take()
    }
}
