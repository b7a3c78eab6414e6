//! The machine as a whole: its CPUs and what they share, and how they yield, sleep and wake each other.
//!
//! It knows no kernel. Whoever runs on it says when a CPU may act next ([`Multiprocessor::schedule`]), asks who is
//! ([`Multiprocessor::next`]), and resumes the coroutine of that CPU, which hands over by suspending.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Features, SpaceToken, Tlb};

use super::agenda::{Agenda, NEVER};
use super::costs::Costs;
use super::defect::{Defect, DefectCounter};
use super::fiber;
use super::prefetch::{Frames, prefetch};
use super::processor::Processor;
use super::streak::Streak;
use crate::lines::{LineCounters, Lines};
use crate::machine::Machine;
use crate::observer::{Cause, Observer};

/// No CPU: the host itself, before the first cycle and after the last.
const NOBODY: usize = usize::MAX;

/// One simulated machine, with the protocol that runs on it. Aligned to a line, so that which fields share lines does
/// not depend on the host's allocator.
#[repr(align(64))]
pub(crate) struct Multiprocessor {
    pub(super) costs: Costs,
    pub(super) processors: Vec<Processor>,
    pub(super) lines: RefCell<Lines>,
    pub(super) tlb: Tlb<'static>,
    pub(super) observer: Observer,
    pub(super) defect: DefectCounter,
    pub(super) features: Features,
    /// Spaces by their tokens; none while one is being made.
    spaces: RefCell<Vec<Option<&'static AddressSpace<'static>>>>,
    /// Spaces whose last lazy reference is gone.
    pub(super) unreferenced: RefCell<Vec<SpaceToken>>,
    cpus_per_socket: usize,
    threads_per_core: usize,
    agenda: RefCell<Agenda>,
    /// The time of the CPU that is next: whoever runs is ahead of it from here on.
    pub(super) horizon: Cell<u64>,
    /// From then on a touch by the running CPU must let others run first, or something is due; 0 where that is unknown.
    limit: Cell<u64>,
    pub(super) streak: Streak,
    now: Cell<u64>,
    current: Cell<usize>,
    frames: Frames,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// The CPU that acts.
    pub(crate) cpu: usize,
    /// The one that acts after it, as far as that is known.
    pub(crate) after: Option<usize>,
}

/// What it is made of.
impl Multiprocessor {
    /// The first `cpus` CPUs of a machine, on which `tlb` runs.
    pub(crate) fn new(machine: &Machine, cpus: usize, tlb: Tlb<'static>, observer: Observer, defect: Defect) -> Self {
        let costs = Costs::new(machine, tlb.policy());
        let config = Arc::new(machine.mmu());
        let sockets = machine.system.sockets.count().min(cpus);
        let cpus_per_socket = cpus.div_ceil(sockets);
        Self {
            costs,
            processors: (0..cpus).map(|_| Processor::new(&config)).collect(),
            lines: RefCell::new(Lines::new(costs.lines, cpus, cpus_per_socket as u32)),
            tlb,
            observer,
            defect: DefectCounter::new(defect),
            features: Features { pcid: machine.features.pcid, invpcid: machine.features.invpcid },
            spaces: RefCell::default(),
            unreferenced: RefCell::default(),
            cpus_per_socket,
            threads_per_core: machine.system.smt.count(),
            agenda: RefCell::new(Agenda::new(cpus)),
            horizon: Cell::new(NEVER),
            limit: Cell::new(0),
            streak: Streak::new(),
            now: Cell::new(0),
            current: Cell::new(NOBODY),
            frames: Frames::new(cpus),
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

    /// What everything costs here.
    pub(crate) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The protocol.
    pub(crate) fn tlb(&self) -> &Tlb<'static> {
        &self.tlb
    }

    /// Who sees what happens here.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// What the machine loses.
    pub(crate) fn defect(&self) -> &DefectCounter {
        &self.defect
    }

    /// Totals over all shared cache lines.
    pub(crate) fn line_counters(&self) -> LineCounters {
        self.lines.borrow().counters()
    }

    /// These words are a set of CPUs: their lines are accounted for apart.
    pub(crate) fn mark_cpu_set(&self, set: &[AtomicU64]) {
        let addresses = set.as_ptr_range();
        self.lines.borrow_mut().mark_set(addresses.start.addr(), addresses.end.addr());
    }

    /// The next token. Its space comes later: to make one takes time, in which other CPUs make spaces too.
    pub(crate) fn new_token(&self) -> SpaceToken {
        let mut spaces = self.spaces.borrow_mut();
        spaces.push(None);
        SpaceToken(spaces.len() as u64 - 1)
    }

    /// From now on the token names the space.
    pub(crate) fn set_space(&self, token: SpaceToken, space: &'static AddressSpace<'static>) {
        let before = self.spaces.borrow_mut()[token.0 as usize].replace(space);
        assert!(before.is_none(), "a token names one space");
    }

    pub(super) fn space(&self, token: SpaceToken) -> &'static AddressSpace<'static> {
        self.spaces.borrow()[token.0 as usize].expect("a space that was made")
    }

    /// The spaces whose last lazy reference has gone since this was asked last.
    pub(crate) fn take_unreferenced(&self) -> Vec<SpaceToken> {
        self.unreferenced.take()
    }

    pub(super) fn same_socket(&self, a: usize, b: usize) -> bool {
        a / self.cpus_per_socket == b / self.cpus_per_socket
    }

    /// The other thread of the CPU's core, if the machine has two a core: numbered half a socket apart.
    fn sibling(&self, cpu: usize) -> Option<usize> {
        let half = self.cpus_per_socket / 2;
        if self.threads_per_core != 2 || half == 0 {
            return None;
        }
        let (socket, place) = (cpu / self.cpus_per_socket, cpu % self.cpus_per_socket);
        Some(socket * self.cpus_per_socket + (place + half) % (2 * half)).filter(|&it| it < self.cpus())
    }

    /// What work costs on the CPU now, in percent of what it costs while the other thread of the core does nothing.
    pub(crate) fn work_percent(&self, cpu: usize) -> u64 {
        let is_shared = self.sibling(cpu).is_some_and(|sibling| !self.processors[sibling].is_halted());
        if is_shared { self.costs.smt_percent } else { 100 }
    }
}

/// Who acts when.
impl Multiprocessor {
    /// The next CPU to act, made the current one, or none if none ever will.
    pub(crate) fn next(&self) -> Option<Turn> {
        let agenda = self.agenda.borrow();
        let (at, cpu) = agenda.first()?;
        let cpu = cpu as usize;
        self.current.set(cpu);
        self.now.set(at);
        let second = agenda.second();
        self.horizon.set(second.map_or(NEVER, |(at, _)| at));
        let after = second.map(|(_, cpu)| cpu as usize);
        if let Some(after) = after {
            self.frames.prefetch(after);
            prefetch(&self.processors[after]);
        }
        self.forget_limits();
        Some(Turn { cpu, after })
    }

    /// When the turn of the running CPU began.
    pub(crate) fn turn_began_at(&self) -> u64 {
        self.now.get()
    }

    /// The host takes over again.
    pub(crate) fn stop(&self) {
        self.forget_limits();
        self.current.set(NOBODY);
    }

    /// Gives the CPU a time at which it acts next.
    pub(crate) fn schedule(&self, cpu: usize, at: u64) {
        self.agenda.borrow_mut().set(cpu as u32, at);
    }

    /// Lets the CPU act at `at` if it would act later or never.
    pub(crate) fn wake(&self, cpu: usize, at: u64) {
        if Some(cpu) == self.running_cpu() {
            return;
        }
        let at = at.max(self.processors[cpu].now());
        let mut agenda = self.agenda.borrow_mut();
        if agenda.when(cpu as u32) > at {
            agenda.set(cpu as u32, at);
            self.horizon.set(self.horizon.get().min(at));
            self.forget_limits();
        }
    }

    /// How far ahead a CPU may touch memory: an interrupt sent by the CPU behind it cannot arrive sooner.
    pub(crate) fn touch_lookahead(&self) -> u64 {
        self.costs.ipi_same_socket.min(self.costs.ipi_cross_socket)
    }

    /// How far the running CPU may go without a look around may have changed.
    #[inline]
    pub(crate) fn forget_limits(&self) {
        self.limit.set(0);
        self.end_streak();
    }

    /// Whatever access comes next must be looked up.
    #[inline]
    pub(super) fn end_streak(&self) {
        let hits = self.streak.end(self.costs.lines.local_cycles);
        if hits > 0 {
            self.lines.borrow_mut().count_hits(hits);
        }
    }

    /// Computes until when touches of the CPU need no look around: until then nobody else can matter to it, and what
    /// runs on it wants nothing before `bound`.
    pub(crate) fn refresh_limit(&self, cpu: usize, bound: u64) {
        let ahead = self.horizon.get().saturating_add(self.touch_lookahead() + 1);
        self.limit.set(ahead.min(self.processors[cpu].takes_at()).min(bound));
    }

    /// True if the running CPU must look around before its next touch of memory.
    #[inline]
    pub(crate) fn must_look_around(&self) -> bool {
        self.running().now() >= self.limit.get()
    }

    /// Lets CPUs that are behind catch up, unless this one is at most `lookahead` cycles ahead; takes due interrupts.
    pub(crate) fn sync(&'static self, lookahead: u64) {
        let cpu = self.cpu();
        let processor = &self.processors[cpu];
        loop {
            if processor.takes_at() <= processor.now() {
                self.take_interrupts(cpu);
            } else if processor.now() > self.horizon.get().saturating_add(lookahead) {
                self.hand_over(processor.now());
            } else {
                return;
            }
        }
    }

    /// Sleeps until `at`, or until somebody wakes the CPU; interrupts are left to the caller.
    pub(crate) fn sleep_until(&'static self, at: u64, cause: Cause) {
        let processor = self.running();
        if at > self.horizon.get() || at == NEVER {
            self.hand_over(at);
            processor.advance_to(self.now.get(), cause);
        } else {
            processor.advance_to(at, cause);
        }
    }

    /// HLT: sleeps until an interrupt is due, or somebody wakes the CPU. Interrupts are left to the caller.
    pub(crate) fn halt(&'static self) {
        let processor = self.running();
        processor.is_halted.set(true);
        self.sleep_until(processor.due(), Cause::Idle);
        processor.is_halted.set(false);
    }

    fn hand_over(&self, at: u64) {
        if at == NEVER {
            self.agenda.borrow_mut().remove(self.cpu() as u32);
        } else {
            self.schedule(self.cpu(), at);
        }
        self.frames.note(self.cpu());
        fiber::suspend();
    }
}
