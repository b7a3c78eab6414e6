//! What machine and kernel tell the observer, and the totals that it keeps.

use std::cell::{Cell, RefCell};
use std::mem;

use serde::{Deserialize, Serialize};
use tlbkit::{Event, PAGE_BYTES, PhysAddr};
use tlbkit_arch::Pte;

use super::bounds::{Bounds, Graces, Moment};
use super::clairvoyant::{Intent, Operation, Owner, lost_by, lost_by_name};
use super::flushes::{FlushCounters, FlushSize, FlushSizes};
use super::ledger::Class;
use super::samples::{Sample, Samples};
use super::walkers::{LEVEL_SHIFTS, Placement, Roots, Walk, Walkers};
use crate::mmu::Mmu;

/// Interrupts of all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct IpiCounters {
    /// Requests to other CPUs to answer, each target counted.
    pub sent: u64,
    /// Of those, to CPUs that the host had taken away.
    #[serde(default)]
    pub to_preempted: u64,
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
    /// CPUs that the host took away.
    #[serde(default)]
    pub host_preemptions: u64,
    /// Tasks that a balancer moved to another CPU while they ran.
    pub moves: u64,
    /// Processes and threads started.
    pub tasks: u64,
    /// Pages that were retired.
    pub retired_pages: u64,
    /// The most of them that were held at a time.
    pub held_pages_most: u64,
    /// Cycles of the calls that the workload times.
    #[serde(default)]
    pub timed_cycles: u64,
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
    changed: Changed,
    /// The flush that it is telling others of, as each of [`Observer::graces`] counts them.
    telling: Option<[u64; 2]>,
    /// Since when it has waited for answers to its flush.
    waits_since: Option<u64>,
    /// When it began to carry out a request.
    answers_since: u64,
    /// The end of the last answer to its flush, and how long carrying it out took.
    last_answer: (u64, u64),
}

/// What a CPU has taken out of the page tables and not flushed yet.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    pages: u64,
    /// Something of it may have been used: an entry had its accessed bit set, or a table led to others.
    was_accessed: bool,
}

/// What was seen of one run.
pub(crate) struct Observer {
    flushes: Cell<FlushCounters>,
    sizes: RefCell<FlushSizes>,
    ipis: Cell<IpiCounters>,
    kernel: Cell<KernelCounters>,
    held_pages: Cell<u64>,
    score: Cell<u64>,
    samples: Samples,
    cpus: RefCell<Vec<OnCpu>>,
    bounds: Cell<Bounds>,
    walkers: RefCell<Walkers>,
    roots: RefCell<Roots>,
    /// By crossings, and by ticks.
    graces: RefCell<[Graces; 2]>,
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
            held_pages: Cell::new(0),
            score: Cell::new(0),
            samples: Samples::new(sample_cycles),
            cpus: RefCell::new(vec![OnCpu::default(); cpus]),
            bounds: Cell::default(),
            walkers: RefCell::new(Walkers::new(cpus)),
            roots: RefCell::default(),
            graces: RefCell::new([Graces::new(cpus), Graces::new(cpus)]),
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

    /// A call that the workload times took so many cycles.
    pub(crate) fn timed(&self, cycles: u64) {
        let mut counters = self.kernel.get();
        counters.timed_cycles += cycles;
        self.kernel.set(counters);
    }

    /// Pages were retired.
    pub(crate) fn retired(&self, pages: u64) {
        let held = self.held_pages.get() + pages;
        self.held_pages.set(held);
        let mut counters = self.kernel.get();
        counters.retired_pages += pages;
        counters.held_pages_most = counters.held_pages_most.max(held);
        self.kernel.set(counters);
    }

    /// Retired pages were given back.
    pub(crate) fn given_back(&self, pages: u64) {
        self.held_pages.set(self.held_pages.get() - pages);
    }

    /// The benchmark counted so many units more, at `now`.
    pub(crate) fn scored(&self, units: u64, now: u64) {
        self.score.set(self.score.get() + units);
        self.samples.look(now, self.score.get());
    }

    /// The CPU begins to change `pages` pages from `va` of the space at `root`.
    pub(crate) fn begin_range(&self, cpu: usize, root: PhysAddr, va: u64, pages: u64, intent: Intent) {
        self.begin(cpu, Operation::new(Owner::Space(root), Some((va, pages)), intent));
    }

    /// The CPU begins to change all of the space at `root`.
    pub(crate) fn begin_everything(&self, cpu: usize, root: PhysAddr, intent: Intent) {
        self.begin(cpu, Operation::new(Owner::Space(root), None, intent));
    }

    /// The CPU begins to change `pages` pages from `va` of the kernel's own.
    pub(crate) fn begin_kernel_range(&self, cpu: usize, va: u64, pages: u64) {
        self.begin(cpu, Operation::new(Owner::Kernel, Some((va, pages)), Intent::Keeps));
    }

    fn begin(&self, cpu: usize, operation: Operation) {
        self.cpus.borrow_mut()[cpu].operation = Some(operation);
    }

    /// The CPU has finished what it began to change.
    pub(crate) fn end_operation(&self, cpu: usize) {
        let ended = self.cpus.borrow_mut()[cpu].operation.take();
        if let Some(operation) = ended
            && operation.intent != Intent::Keeps
            && let Some((root, range)) = operation.place()
        {
            self.walkers.borrow_mut().forget_pages(root, &range);
        }
    }

    /// The thread `owner` has mapped pages from `va` on.
    pub(crate) fn mapped(&self, root: PhysAddr, va: u64, pages: u64, owner: u32) {
        self.walkers.borrow_mut().map(root, va..va + pages * PAGE_BYTES, owner);
    }

    /// Pages from `va` on are not mapped any more.
    pub(crate) fn unmapped(&self, root: PhysAddr, va: u64, pages: u64) {
        self.walkers.borrow_mut().unmap(root, &(va..va + pages * PAGE_BYTES));
    }

    /// The space at `child` is a copy of the one at `parent`.
    pub(crate) fn forked(&self, parent: PhysAddr, child: PhysAddr) {
        self.walkers.borrow_mut().fork(parent, child);
    }

    /// The program on the CPU has walked to the page at `va`.
    pub(crate) fn walked(&self, cpu: usize, root: PhysAddr, va: u64, walk: Walk) {
        self.walkers.borrow_mut().note(cpu, root, va, walk);
    }

    /// The CPU has replaced an entry of a page table by another.
    pub(crate) fn entry_changed(&self, cpu: usize, before: Pte, after: Pte) {
        if before.needs_flush(after) {
            let changed = &mut self.cpus.borrow_mut()[cpu].changed;
            changed.pages += u64::from(after.is_empty());
            changed.was_accessed |= before.has(Pte::ACCESSED);
        }
    }

    /// The CPU passes a moment at which it could have done what was left to it.
    pub(crate) fn passed(&self, cpu: usize, moment: Moment, now: u64) {
        self.graces.borrow_mut()[moment as usize].pass(cpu, now);
    }

    /// A process begins to end on the CPU, which does nothing else until [`end_exit`](Self::end_exit).
    pub(crate) fn begin_exit(&self, cpu: usize, root: PhysAddr) {
        self.begin_everything(cpu, root, Intent::GivesAway);
        self.cpus.borrow_mut()[cpu].is_ending = true;
        self.count(|counters| counters.exits += 1);
    }

    /// The process has ended.
    pub(crate) fn end_exit(&self, cpu: usize) {
        self.cpus.borrow_mut()[cpu].is_ending = false;
        if let Some((root, range)) = self.cpus.borrow()[cpu].operation.as_ref().and_then(Operation::place) {
            self.walkers.borrow_mut().unmap(root, &range);
        }
        self.end_operation(cpu);
    }

    /// The CPU took the table at `at` out of the page tables.
    pub(crate) fn table_unhooked(&self, cpu: usize, at: PhysAddr) {
        if let Some(operation) = &mut self.cpus.borrow_mut()[cpu].operation {
            operation.note_unhooked(at);
        }
        self.cpus.borrow_mut()[cpu].changed.was_accessed = true;
    }
}

/// What the machine tells.
impl Observer {
    /// The top-level table at `own` is one CPU's, for the space that has one at `root`.
    pub(crate) fn root_is_of(&self, own: PhysAddr, root: PhysAddr) {
        self.roots.borrow_mut().add(own, root);
    }

    /// The CPU sends a flush interrupt to the CPU `to`, which has `to_mmu` and runs `to_class`.
    pub(crate) fn flush_interrupt_sent(&self, cpu: usize, to: usize, to_mmu: &Mmu, to_class: Class, now: u64) {
        self.bound_interrupt(cpu, to, now);
        let cpus = self.cpus.borrow();
        let OnCpu { operation, is_ending, .. } = &cpus[cpu];
        let space = self.roots.borrow().of_space(to_mmu.cr3().root());
        let is_needed = operation.as_ref().is_some_and(|operation| operation.concerns(to_mmu, to_class, space));
        self.count(|counters| {
            counters.interrupts.count(u64::from(is_needed));
            counters.exit_interrupts += u64::from(*is_ending);
        });
        self.count_ipi(|ipis| ipis.sent += 1);
    }

    /// That CPU had been taken away by the host.
    pub(crate) fn interrupted_preempted(&self) {
        self.count_ipi(|ipis| ipis.to_preempted += 1);
    }

    /// Which ideas would send the same interrupt.
    fn bound_interrupt(&self, cpu: usize, to: usize, now: u64) {
        let (walkers, mut cpus, mut graces) = (self.walkers.borrow(), self.cpus.borrow_mut(), self.graces.borrow_mut());
        let OnCpu { operation: Some(operation), changed, telling, .. } = &mut cpus[cpu] else { return };
        let mut bounds = self.bounds.get();
        match operation.place() {
            Some((root, range)) => {
                for (level, shift) in LEVEL_SHIFTS.into_iter().enumerate() {
                    let is_told = |placement| u64::from(walkers.has_named(to, root, &range, shift, placement));
                    bounds.regions[level] += is_told(Placement::Together);
                    bounds.regions_apart[level] += is_told(Placement::Apart);
                }
                bounds.pages += u64::from(walkers.has_walked(to, root, &range));
            }
            None => {
                bounds.regions.iter_mut().chain(&mut bounds.regions_apart).for_each(|told| *told += 1);
                bounds.pages += 1;
            }
        }
        bounds.accessed += u64::from(changed.was_accessed);
        bounds.kept += u64::from(operation.intent != Intent::GivesAway);
        if operation.intent == Intent::GivesAway {
            let flushes = telling.get_or_insert_with(|| graces.each_mut().map(|one| one.begin(changed.pages, now)));
            graces.iter_mut().zip(flushes).for_each(|(one, flush)| one.leave_to(to, *flush));
        }
        self.bounds.set(bounds);
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

    /// The host takes a CPU away.
    pub(crate) fn preempted_by_host(&self) {
        let mut counters = self.kernel.get();
        counters.host_preemptions += 1;
        self.kernel.set(counters);
    }

    /// A CPU executes INVLPGB.
    pub(crate) fn broadcast(&self) {
        self.count(|counters| counters.broadcasts += 1);
    }

    /// The protocol says that something happened on the CPU; `local_cycles` is what the local halves of flushes have
    /// cost it so far, this event not included.
    pub(crate) fn protocol_event(&self, cpu: usize, event: Event, local_cycles: u64, now: u64) {
        match event {
            Event::Waiting(_) => _ = self.cpus.borrow_mut()[cpu].waits_since.get_or_insert(now),
            Event::FlushEnd | Event::FlushIssued => self.end_flush(cpu, now),
            Event::AnswerBegin(_) => self.cpus.borrow_mut()[cpu].answers_since = now,
            Event::AnswerEnd(initiator) => {
                let cpus = &mut self.cpus.borrow_mut();
                let took = now - cpus[cpu].answers_since;
                let last = &mut cpus[initiator.0 as usize].last_answer;
                *last = (*last).max((now, took));
            }
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
            Event::Spared { until_entry, by_host } => self.count(|counters| {
                counters.spared_until_entry += u64::from(until_entry);
                counters.spared_by_host += u64::from(by_host);
            }),
            Event::SwitchKept => self.count(|counters| counters.switches_kept += 1),
            Event::SwitchFlushed => self.count(|counters| counters.switches_flushed += 1),
            Event::AlreadyCurrent => self.count(|counters| counters.already_current += 1),
            Event::WrongSpace => self.count(|counters| counters.wrong_space += 1),
            _ => {}
        }
    }

    fn end_flush(&self, cpu: usize, now: u64) {
        let on_cpu = &mut self.cpus.borrow_mut()[cpu];
        on_cpu.changed = Changed::default();
        if let Some(flushes) = on_cpu.telling.take() {
            let mut graces = self.graces.borrow_mut();
            graces.iter_mut().zip(flushes).for_each(|(one, flush)| one.settle(flush, now));
        }
        if let Some(since) = on_cpu.waits_since.take() {
            let mut bounds = self.bounds.get();
            bounds.early_cycles += on_cpu.last_answer.1.min(now - since);
            self.bounds.set(bounds);
        }
        on_cpu.last_answer = (0, 0);
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

    /// What each idea could save at most.
    pub(crate) fn bounds(&self) -> Bounds {
        let ([crossing, tick], walkers) = (&*self.graces.borrow(), self.walkers.borrow());
        Bounds {
            region_faults: walkers.added_faults[0],
            region_apart_faults: walkers.added_faults[1],
            crossing_page_cycles: crossing.page_cycles,
            tick_page_cycles: tick.page_cycles,
            tick_pages_most: tick.pages_most,
            ..self.bounds.get()
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tlbkit::{CpuId, SpaceToken};

    /// What an observer of one CPU has counted, apart from what perfect knowledge would have left out.
    fn counted(tell: impl Fn(&Observer)) -> (FlushCounters, IpiCounters, KernelCounters) {
        let observer = Observer::new(1, None);
        tell(&observer);
        (observer.flushes(), observer.ipis(), observer.kernel())
    }

    #[test]
    fn what_the_kernel_does_is_counted_once() {
        let none = KernelCounters::default();
        for (event, once) in [
            (KernelEvent::Syscall, KernelCounters { syscalls: 1, ..none }),
            (KernelEvent::Fault, KernelCounters { faults: 1, ..none }),
            (KernelEvent::Switch, KernelCounters { switches: 1, ..none }),
            (KernelEvent::RemoteWake, KernelCounters { remote_wakes: 1, ..none }),
            (KernelEvent::Preemption, KernelCounters { preemptions: 1, ..none }),
            (KernelEvent::Move, KernelCounters { moves: 1, ..none }),
            (KernelEvent::TaskStart, KernelCounters { tasks: 1, ..none }),
        ] {
            let told = counted(|observer| observer.kernel_event(event));
            assert_eq!(told, (FlushCounters::default(), IpiCounters::default(), once), "{event:?}");
        }
    }

    #[test]
    fn what_the_protocol_says_is_counted_once() {
        let none = FlushCounters::default();
        for (event, once) in [
            (Event::SwitchKept, FlushCounters { switches_kept: 1, ..none }),
            (Event::SwitchFlushed, FlushCounters { switches_flushed: 1, ..none }),
            (Event::FlushBegin(3), FlushCounters { flushes: 1, flush_pages: 3, ..none }),
            (Event::FlushBegin(u32::MAX), FlushCounters { flushes: 1, full_flushes: 1, ..none }),
            (Event::FlushLocalDone, none),
            (Event::Chosen { asked: 2, skipped: 3 }, FlushCounters { left_alone: 3, ..none }),
            (Event::FlushIssued, none),
            (Event::FlushEnd, none),
            (Event::AnswerBegin(CpuId(0)), none),
            (Event::AnswerEnd(CpuId(0)), none),
            (Event::Waiting(CpuId(0)), none),
            (Event::AlreadyCurrent, FlushCounters { already_current: 1, ..none }),
            (Event::WrongSpace, FlushCounters { wrong_space: 1, ..none }),
            (Event::LazyLeft(SpaceToken(0)), none),
            (Event::LastLazyReference(SpaceToken(0)), none),
        ] {
            let told = counted(|observer| observer.protocol_event(0, event, 0, 0));
            assert_eq!(told, (once, IpiCounters::default(), KernelCounters::default()), "{event:?}");
        }
    }

    #[test]
    fn what_a_process_sends_and_flushes_while_it_ends_is_counted_once_more() {
        let told = counted(|observer| {
            for is_ending in [true, false] {
                if is_ending {
                    observer.begin_exit(0, PhysAddr(0));
                } else {
                    observer.end_exit(0);
                }
                observer.protocol_event(0, Event::FlushBegin(u32::MAX), 0, 0);
                observer.protocol_event(0, Event::FlushBegin(2), 0, 0);
            }
        });
        let flushes = FlushCounters {
            flushes: 4,
            flush_pages: 4,
            full_flushes: 2,
            exits: 1,
            exit_full_flushes: 1,
            ..FlushCounters::default()
        };
        assert_eq!(told, (flushes, IpiCounters::default(), KernelCounters::default()));
    }

    /// By size, with what their local halves have cost; one that was asked for by its wait has two halves.
    #[test]
    fn the_local_halves_of_flushes_are_counted_once() {
        let observer = Observer::new(1, None);
        let tell = |event, local_cycles| observer.protocol_event(0, event, local_cycles, 0);
        [(1, 100), (u32::MAX, 300), (1, 600)].into_iter().for_each(|(pages, local_cycles)| {
            tell(Event::FlushBegin(pages), 0);
            tell(Event::FlushLocalDone, local_cycles);
        });
        tell(Event::FlushLocalDone, 1_000);
        let expected = [(None, 1, 200), (Some(1), 2, 100 + 300 + 400)];
        assert_eq!(observer.sizes(), expected.map(|(pages, flushes, cycles)| FlushSize { pages, flushes, cycles }));
    }

    #[test]
    fn commands_and_interrupts_are_counted_once() {
        let none = IpiCounters::default();
        type Row = (fn(&Observer), IpiCounters);
        let table: [Row; 3] = [
            (|it| it.command_written(7), IpiCounters { commands: 1, pending_cycles: 7, ..none }),
            (Observer::wake_sent, IpiCounters { wakes_sent: 1, ..none }),
            (Observer::flush_interrupt_taken, IpiCounters { received: 1, ..none }),
        ];
        for (tell, once) in table {
            assert_eq!(counted(tell), (FlushCounters::default(), once, KernelCounters::default()));
        }
    }
}
