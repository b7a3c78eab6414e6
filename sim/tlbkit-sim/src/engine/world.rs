//! Everything of one run, and how its CPUs yield, sleep and wake each other.

use std::cell::{Cell, OnceCell, RefCell};

use tlbkit::{Cpu, CpuId, Tlb};
use tlbkit_pmap::KernelMap;

use super::agenda::Agenda;
use super::core::{Core, NEVER};
use super::costs::Costs;
use super::fetch::Frames;
use super::fiber;
use super::ledger::Cause;
use super::observe::Streak;
use super::port::Port;
use crate::kernel::Kernel;
use crate::kernel::phys::Phys;
use crate::kernel::process::Process;
use crate::lines::Lines;
use crate::machine::Machine;
use crate::run::fault_injection::Sabotage;
use crate::run::insight::Insight;

/// No CPU: the host itself, before the first cycle and after the last.
pub(crate) const NOBODY: usize = usize::MAX;

thread_local! {
    static CURRENT: Cell<Option<&'static World>> = const { Cell::new(None) };
}

/// One simulated machine with its kernel. Aligned to a line, so that which fields share lines does not depend on the
/// host's allocator.
#[repr(align(64))]
pub(crate) struct World {
    pub(crate) costs: Costs,
    pub(crate) cores: Vec<Core>,
    pub(crate) lines: RefCell<Lines>,
    pub(crate) tlb: Tlb<'static>,
    pub(crate) phys: Phys,
    pub(crate) kernel: Kernel,
    pub(crate) insight: Insight,
    pub(crate) sabotage: Sabotage,
    pub(crate) features: tlbkit::Features,
    /// Processes by the tokens of their spaces; none while one is being made.
    pub(crate) spaces: RefCell<Vec<Option<&'static Process>>>,
    /// The kernel's own page tables.
    pub(crate) map: &'static KernelMap<'static>,
    pub(crate) failure: OnceCell<crate::run::RunError>,
    cpus_per_socket: usize,
    threads_per_core: usize,
    agenda: RefCell<Agenda>,
    /// The time of the CPU that is next: whoever runs is ahead of it from here on.
    pub(crate) horizon: Cell<u64>,
    /// From then on a touch by the running CPU must let others run first, or something is due; 0 where that is unknown.
    pub(crate) limit: Cell<u64>,
    pub(crate) streak: Streak,
    now: Cell<u64>,
    current: Cell<usize>,
    frames: Frames,
}

/// What a world is made of.
pub(crate) struct Parts {
    pub(crate) tlb: Tlb<'static>,
    pub(crate) phys: Phys,
    pub(crate) map: &'static KernelMap<'static>,
    pub(crate) kernel: Kernel,
    pub(crate) insight: Insight,
    pub(crate) sabotage: Sabotage,
}

impl World {
    pub(crate) fn new(machine: &Machine, cpus: usize, parts: Parts) -> Self {
        let costs = Costs::new(machine, parts.tlb.policy());
        let config = std::sync::Arc::new(machine.mmu());
        let sockets = machine.system.sockets.count().min(cpus);
        let cpus_per_socket = cpus.div_ceil(sockets);
        let Parts { tlb, phys, map, kernel, insight, sabotage } = parts;
        Self {
            costs,
            cores: (0..cpus).map(|_| Core::new(&config)).collect(),
            lines: RefCell::new(Lines::new(costs.lines, cpus, cpus_per_socket as u32)),
            tlb,
            phys,
            map,
            kernel,
            insight,
            sabotage,
            features: tlbkit::Features { pcid: machine.features.pcid, invpcid: machine.features.invpcid },
            spaces: RefCell::default(),
            failure: OnceCell::new(),
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

    /// The world of this host thread.
    pub(crate) fn of_thread() -> Option<&'static Self> {
        CURRENT.get()
    }

    /// Makes it the world of this host thread, or none.
    pub(crate) fn install(world: Option<&'static Self>) {
        CURRENT.set(world);
    }

    /// The CPU that is running, if any is.
    pub(crate) fn running_cpu(&self) -> Option<usize> {
        Some(self.current.get()).filter(|&cpu| cpu != NOBODY)
    }

    /// The CPU that is running.
    ///
    /// # Panics
    /// If none is.
    pub(crate) fn cpu(&self) -> usize {
        self.running_cpu().expect("a simulated CPU is running")
    }

    /// The CPU that is running.
    pub(crate) fn core(&self) -> &Core {
        &self.cores[self.cpu()]
    }

    pub(crate) fn port(&'static self, cpu: usize) -> Port {
        Port { world: self, cpu }
    }

    /// Calls the protocol on behalf of a CPU.
    pub(crate) fn with_cpu<R>(&'static self, cpu: usize, body: impl FnOnce(Cpu<'_, 'static, Port>) -> R) -> R {
        let port = self.port(cpu);
        body(self.tlb.cpu(CpuId(cpu as u32), &port))
    }

    pub(crate) fn same_socket(&self, a: usize, b: usize) -> bool {
        a / self.cpus_per_socket == b / self.cpus_per_socket
    }

    /// The other thread of the CPU's core, if the machine has two a core: numbered half a socket apart.
    pub(crate) fn sibling(&self, cpu: usize) -> Option<usize> {
        let half = self.cpus_per_socket / 2;
        if self.threads_per_core != 2 || half == 0 {
            return None;
        }
        let (socket, place) = (cpu / self.cpus_per_socket, cpu % self.cpus_per_socket);
        Some(socket * self.cpus_per_socket + (place + half) % (2 * half)).filter(|&it| it < self.cores.len())
    }

    /// How far ahead a CPU may touch memory: an interrupt sent by the CPU behind it cannot arrive sooner.
    pub(crate) fn touch_lookahead(&self) -> u64 {
        self.costs.ipi_same_socket.min(self.costs.ipi_cross_socket)
    }

    /// The next CPU to act, made the current one, or none if none ever will.
    pub(crate) fn next(&self) -> Option<usize> {
        let agenda = self.agenda.borrow();
        let (at, cpu) = agenda.first()?;
        let cpu = cpu as usize;
        self.current.set(cpu);
        self.now.set(at);
        let second = agenda.second();
        self.horizon.set(second.map_or(NEVER, |(at, _)| at));
        if let Some((_, cpu)) = second {
            let cpu = cpu as usize;
            self.frames.fetch(cpu, &self.cores[cpu], &self.kernel.runs[cpu]);
        }
        self.forget_limits();
        Some(cpu)
    }

    /// When the turn of the running CPU began.
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// The host takes over again.
    pub(crate) fn stop(&self) {
        self.forget_limits();
        self.current.set(NOBODY);
    }

    /// Lets the CPU act at `at` if it would act later or never.
    pub(crate) fn wake(&self, cpu: usize, at: u64) {
        if Some(cpu) == self.running_cpu() {
            return;
        }
        let at = at.max(self.cores[cpu].clock.get());
        let mut agenda = self.agenda.borrow_mut();
        if agenda.when(cpu as u32) > at {
            agenda.set(cpu as u32, at);
            self.horizon.set(self.horizon.get().min(at));
            self.forget_limits();
        }
    }

    /// How far the running CPU may go without a look around may have changed.
    #[inline]
    pub(crate) fn forget_limits(&self) {
        self.limit.set(0);
        self.end_streak();
    }

    /// Recomputes until when touches of the running CPU need no look around.
    pub(crate) fn refresh_limit(&self, cpu: usize) {
        let ahead = self.horizon.get().saturating_add(self.touch_lookahead() + 1);
        let kernel = &self.kernel;
        self.limit.set(ahead.min(self.cores[cpu].takes_at()).min(kernel.preempt_at(cpu)).min(kernel.overdue_at()));
    }

    /// Lets CPUs that are behind catch up, unless this one is at most `lookahead` cycles ahead; takes due interrupts.
    pub(crate) fn sync(&'static self, lookahead: u64) {
        let cpu = self.cpu();
        let core = &self.cores[cpu];
        loop {
            if core.takes_at() <= core.clock.get() {
                self.take_interrupts(cpu);
            } else if core.clock.get() > self.horizon.get().saturating_add(lookahead) {
                self.hand_over(core.clock.get());
            } else {
                return;
            }
        }
    }

    /// Sleeps until `at`, or until somebody wakes the CPU; interrupts are left to the caller.
    pub(crate) fn sleep_until(&'static self, at: u64, cause: Cause) {
        let core = self.core();
        if at > self.horizon.get() || at == NEVER {
            self.hand_over(at);
            core.advance_to(self.now.get(), cause);
        } else {
            core.advance_to(at, cause);
        }
    }

    /// Gives the CPU a time at which it acts next.
    pub(crate) fn schedule(&self, cpu: usize, at: u64) {
        self.agenda.borrow_mut().set(cpu as u32, at);
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

    /// Drops the coroutines of tasks that have not ended.
    pub(crate) fn drop_fibers(&self) {
        let tasks = self.kernel.tasks.take();
        tasks.iter().for_each(|task| drop(task.get().fiber.take()));
    }

    /// Ends the run with an error: nothing runs after this, so it does not return to its caller.
    pub(crate) fn fail(&self, error: crate::run::RunError) -> ! {
        let _ = self.failure.set(error);
        loop {
            fiber::suspend();
        }
    }
}
