//! The machine as a whole: its CPUs, and what they share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, Features, GracePeriods, IrqsOff, KernelFlushes, LazyReferences, PhysAddr, Reclaim, SpaceToken, Tlb,
    Unmapping,
};
use tlbkit_machine::{Machine, Noise};

use super::agenda::{Agenda, NEVER};
use super::apic::Apics;
use super::call_queues::CallQueues;
use super::cold::{Caches, CallKind, Warmth};
use super::costs::Costs;
use super::defect::{Defect, DefectCounter};
use super::lru_lock::LruLocks;
use super::noise::NoiseStreams;
use super::overcommit::{Overcommit, ParavirtualFlush};
use super::processor::{Processor, Ring};
use super::streak::Streak;
use super::tally::Tally;
use crate::code::{CallLines, Code, LinesOf};
use crate::host::Frames;
use crate::lines::{LineCounters, Lines};
use crate::mmu::MmuConfig;
use crate::observer::Observer;
use crate::topology::Topology;

/// No CPU: the host itself, before the first cycle and after the last.
pub(super) const NOBODY: usize = usize::MAX;

/// What runs when a CPU takes a flush interrupt that came while it ran in a ring: software, which the machine calls as
/// its gate says.
pub(crate) type FlushHandler = fn(&'static Multiprocessor, usize, Ring);

/// The top-level table that a CPU loads for some space.
pub(crate) type RootOn = Rc<dyn Fn(usize) -> PhysAddr>;

/// Which machine is simulated, whose code it runs, and what is noted of it.
pub(crate) struct MachineSettings<'m> {
    /// What its file says.
    pub(crate) model: &'m Machine,
    /// How many of its CPUs there are: the first ones.
    pub(crate) cpus: usize,
    /// As whose code the protocol is charged.
    pub(crate) code: Code,
    /// Whether more than the workload varies with the seed.
    pub(crate) noise: Noise,
    /// The seed of the noise.
    pub(crate) seed: u64,
    /// What the machine loses.
    pub(crate) defect: Defect,
    /// When flushes of kernel addresses reach a CPU that runs a program.
    pub(crate) kernel_flushes: KernelFlushes,
    /// Whether its host flushes CPUs that it has taken away.
    pub(crate) paravirtual_flush: ParavirtualFlush,
    /// Guests of the host, this one included.
    pub(crate) guests: u64,
    /// How often the observer notes the score; never if there is none.
    pub(crate) sample_cycles: Option<u64>,
}

/// One simulated machine, with the protocol that runs on it. Aligned to a line, so that which fields share lines does
/// not depend on the host's allocator.
#[repr(align(64))]
pub(crate) struct Multiprocessor {
    pub(super) costs: Costs,
    pub(super) apics: Apics,
    /// The queues of calls, if the code that is charged tells other CPUs by these and not by our mailboxes.
    pub(super) queues: Option<CallQueues>,
    pub(super) processors: Vec<Processor>,
    pub(super) lines: RefCell<Lines>,
    pub(super) tlb: Tlb<'static>,
    periods: GracePeriods<'static>,
    is_reclaiming: Cell<bool>,
    pub(super) flush_handler: FlushHandler,
    pub(super) observer: Observer,
    pub(super) defect: DefectCounter,
    pub(super) noise: NoiseStreams,
    pub(super) features: Features,
    /// Pages that one INVLPGB takes, if the CPUs have it.
    pub(super) broadcast_pages: Option<NonZeroU32>,
    pub(super) kernel_flushes: KernelFlushes,
    pub(super) paravirtual_flush: ParavirtualFlush,
    pub(super) overcommit: Option<Overcommit>,
    /// Spaces by their tokens; none while one is being made.
    spaces: RefCell<Vec<Option<&'static AddressSpace>>>,
    /// Top-level tables of each CPU's own, by token.
    roots: RefCell<BTreeMap<u64, RootOn>>,
    /// Spaces whose last lazy reference is gone.
    pub(super) unreferenced: RefCell<Vec<SpaceToken>>,
    pub(super) topology: Topology,
    /// The other thread of each CPU's core: kept here because it is looked up whenever a CPU executes something.
    siblings: Box<[Option<u32>]>,
    pub(super) lru_locks: LruLocks,
    pub(super) agenda: RefCell<Agenda>,
    /// The time of the CPU that acts next. From there on the running CPU is ahead of it.
    pub(super) horizon: Cell<u64>,
    /// From this time on the running CPU must look around before it touches memory: another CPU may have to act first,
    /// or something may be due. It is 0 where that time is unknown.
    pub(super) limit: Cell<u64>,
    pub(super) streak: Streak,
    pub(super) tally: Tally,
    pub(super) now: Cell<u64>,
    pub(super) current: Cell<usize>,
    pub(super) frames: Frames,
    /// The caches, where the machine's file has them, and how warm each CPU's are.
    caches: Option<Caches>,
    warmth: Vec<Warmth>,
    lines_of: &'static LinesOf,
}

impl Multiprocessor {
    /// The machine of these settings, on which the protocol `tlb` runs, and which calls `flush_handler` for every flush
    /// interrupt.
    pub(crate) fn new(
        settings: &MachineSettings<'_>,
        tlb: Tlb<'static>,
        periods: GracePeriods<'static>,
        flush_handler: FlushHandler,
    ) -> Self {
        let &MachineSettings {
            model,
            cpus,
            code,
            noise,
            seed,
            defect,
            kernel_flushes,
            paravirtual_flush,
            guests,
            sample_cycles,
        } = settings;
        let costs = Costs::new(model, tlb.policy(), code);
        let config = Arc::new(MmuConfig::of(model));
        let topology = Topology::new(&model.system, cpus);
        Self {
            costs,
            apics: Apics::new(model.apic.as_ref(), code.destinations(), cpus),
            queues: code.call_queues().map(|reads| CallQueues::new(reads, cpus)),
            processors: (0..cpus).map(|_| Processor::new(&config)).collect(),
            lines: RefCell::new(Lines::new(costs.lines, topology, cpus)),
            tlb,
            periods,
            is_reclaiming: Cell::new(false),
            flush_handler,
            observer: Observer::new(cpus, sample_cycles),
            defect: DefectCounter::new(defect),
            noise: NoiseStreams::new(noise, seed, cpus, model.system.frequency_mhz.value),
            features: Features { pcid: model.features.pcid, invpcid: model.features.invpcid },
            broadcast_pages: model.broadcast.as_ref().and_then(|it| NonZeroU32::new(it.pages.count() as u32)),
            kernel_flushes,
            paravirtual_flush,
            overcommit: Overcommit::of(model, guests, seed, cpus),
            spaces: RefCell::default(),
            roots: RefCell::default(),
            unreferenced: RefCell::default(),
            topology,
            siblings: (0..cpus).map(|cpu| topology.sibling(cpu).map(|sibling| sibling as u32)).collect(),
            lru_locks: LruLocks::new(topology.sockets()),
            agenda: RefCell::new(Agenda::new(cpus)),
            horizon: Cell::new(NEVER),
            limit: Cell::new(0),
            streak: Streak::new(),
            tally: Tally::default(),
            now: Cell::new(0),
            current: Cell::new(NOBODY),
            frames: Frames::new(cpus),
            caches: Caches::of(model),
            warmth: (0..cpus).map(|_| Warmth::default()).collect(),
            lines_of: code.lines(),
        }
    }

    /// How many CPUs there are.
    pub(crate) fn cpus(&self) -> usize {
        self.processors.len()
    }

    /// One CPU.
    pub(crate) fn processor(&self, cpu: usize) -> &Processor {
        &self.processors[cpu]
    }

    /// The CPU that is running, if any is.
    #[inline]
    pub(crate) fn running_cpu(&self) -> Option<usize> {
        Some(self.current.get()).filter(|&cpu| cpu != NOBODY)
    }

    /// The CPU that is running.
    ///
    /// # Panics
    /// If none is.
    #[inline]
    pub(crate) fn cpu(&self) -> usize {
        self.running_cpu().expect("a simulated CPU is running")
    }

    /// The CPU that is running.
    ///
    /// # Panics
    /// If none is.
    #[inline]
    pub(crate) fn running(&self) -> &Processor {
        &self.processors[self.cpu()]
    }

    /// A call of this kind begins on the CPU: how much of its code and data is still near is decided now.
    pub(crate) fn begin_call(&self, cpu: usize, kind: CallKind) {
        if let Some(caches) = &self.caches {
            self.warmth[cpu].begin(caches, kind, &self.processors[cpu].ledger.borrow());
        }
    }

    /// What the CPU waits for lines of the call of this kind that began last.
    pub(crate) fn cold_cycles(&self, cpu: usize, kind: CallKind, lines: impl Fn(&LinesOf) -> CallLines) -> u64 {
        if self.caches.is_none() { 0 } else { self.warmth[cpu].cycles(kind, lines(self.lines_of)) }
    }

    /// The CPU filled so many pages.
    pub(crate) fn note_pages_filled(&self, cpu: usize, pages: u64) {
        self.warmth[cpu].note_pages(pages);
    }

    /// What everything costs here.
    pub(crate) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The protocol.
    pub(crate) fn tlb(&self) -> &Tlb<'static> {
        &self.tlb
    }

    /// The grace periods of what is retired.
    pub(crate) fn periods(&self) -> &GracePeriods<'static> {
        &self.periods
    }

    /// The running CPU, whose interrupts are off, flushes what was retired elsewhere, if this kernel retires anything.
    pub(crate) fn pass(&'static self) {
        if self.tlb.policy().unmapping == Unmapping::Retired {
            self.with_cpu(self.cpu(), |handle| self.periods.pass(&handle, &IrqsOff::assume()));
        }
    }

    /// The kernel reclaims from now on.
    pub(crate) fn begin_reclaim(&self) {
        self.is_reclaiming.set(true);
    }

    /// The running CPU, whose interrupts are off, has just flushed because it was asked to: it has flushed what is
    /// deferred, too. A kernel that has reclaimed nothing has nothing deferred.
    pub(crate) fn pass_after_answer(&'static self) {
        if self.is_reclaiming.get() && self.tlb.policy().reclaim == Reclaim::AtReuse {
            self.with_cpu(self.cpu(), |handle| self.periods.pass(&handle, &IrqsOff::assume()));
        }
    }

    /// The same with interrupts on.
    pub(crate) fn pass_with_irqs_off(&'static self) {
        if self.tlb.policy().unmapping == Unmapping::Retired {
            self.running().disable_interrupts();
            self.pass();
            self.enable_interrupts();
        }
    }

    /// The observer of the machine.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// What the machine loses.
    pub(crate) fn defect(&self) -> &DefectCounter {
        &self.defect
    }

    /// What varies with the seed.
    pub(crate) fn noise(&self) -> &NoiseStreams {
        &self.noise
    }

    /// Totals over all shared cache lines.
    pub(crate) fn line_counters(&self) -> LineCounters {
        self.lines.borrow().counters()
    }

    /// Cycles that CPUs were charged for accesses to shared cache lines.
    pub(crate) fn line_cycles(&self) -> u64 {
        self.lines.borrow().charged_cycles()
    }

    /// What the machine itself counts.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// These words are a set of CPUs: their lines are accounted for apart.
    pub(crate) fn mark_cpu_set(&self, set: &[AtomicU64]) {
        let addresses = set.as_ptr_range();
        self.lines.borrow_mut().mark_set(addresses.start.addr(), addresses.end.addr());
    }

    /// The next token. Its space is set later, because making a space takes time, in which other CPUs make spaces too.
    pub(crate) fn new_token(&self) -> SpaceToken {
        let mut spaces = self.spaces.borrow_mut();
        spaces.push(None);
        SpaceToken(spaces.len() as u64 - 1)
    }

    /// From now on the token names the space. Under a policy that counts lazy references, the count has a line of its
    /// own, as Linux's has since 2023. It never shared a line with the generation there (include/linux/mm_types.h).
    pub(crate) fn set_space(&self, token: SpaceToken, space: &'static AddressSpace) {
        let before = self.spaces.borrow_mut()[token.0 as usize].replace(space);
        assert!(before.is_none(), "a token names one space");
        if self.tlb.policy().lazy_references == LazyReferences::Counted {
            self.lines.borrow_mut().set_apart(space.count_address());
        }
    }

    /// CPUs may have top-level tables of their own for the space that the token names.
    pub(crate) fn find_roots_by(&self, token: SpaceToken, root_on: RootOn) {
        // Its frame may have been another space's.
        let root = self.space(token).root();
        self.observer.root_is_of(root, root);
        self.roots.borrow_mut().insert(token.0, root_on);
    }

    /// The one that `cpu` loads, if it is not the space's.
    pub(super) fn root_on(&self, token: SpaceToken, cpu: usize) -> Option<PhysAddr> {
        // The look takes time, in which other CPUs make spaces.
        let root_on = Rc::clone(self.roots.borrow().get(&token.0)?);
        let root = root_on(cpu);
        (root != self.space(token).root()).then_some(root)
    }

    pub(super) fn space(&self, token: SpaceToken) -> &'static AddressSpace {
        self.spaces.borrow()[token.0 as usize].expect("a space that was made")
    }

    /// The spaces whose last lazy reference has gone since this was asked last.
    pub(crate) fn take_unreferenced(&self) -> Vec<SpaceToken> {
        self.unreferenced.take()
    }

    /// Where its CPUs are.
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What executing costs on the CPU now, in percent of its cost while the other thread of the core does not execute.
    /// A thread that idles does not execute, and neither does one that waits for another CPU, as PAUSE leaves the core
    /// to its sibling.
    pub(crate) fn work_percent(&self, cpu: usize) -> u64 {
        let now = self.processors[cpu].now();
        let is_shared = self.siblings[cpu].is_some_and(|sibling| self.processors[sibling as usize].executes_at(now));
        if is_shared { self.costs.smt_percent } else { 100 }
    }

    /// What instructions that take `cycles` alone cost on the CPU now. All that the CPU executes is charged so:
    /// programs, faults and calls, the protocol's and the kernel's own paths, the entry and the return of an interrupt.
    /// Those that drain the pipeline, as INVLPG and a write to CR3 do, and waits for memory, for lines and for the
    /// interrupt controller take as long beside a sibling as alone.
    #[inline]
    pub(crate) fn shared_cycles(&self, cpu: usize, cycles: u64) -> u64 {
        if self.costs.smt_percent == 100 { cycles } else { cycles * self.work_percent(cpu) / 100 }
    }

    /// The running CPU executes instructions that take `cycles` alone.
    pub(crate) fn execute(&self, cycles: u64) {
        self.running().advance(self.shared_cycles(self.cpu(), cycles));
    }
}
