//! A machine with the protocol and page tables on it: the protocol's code runs in fibers, one a CPU, and stops before
//! each shared access for the scheduler to decide who goes on.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tlbkit::sync::{Access, AtomicU64, Word};
use tlbkit::{CpuId, IrqsOff, Tlb};
use tlbkit_pmap::{KernelMap, Vm};

use super::Machine;
use super::bus::Bus;
use super::core::{Irqs, Mode};
use super::door;
use super::fiber::{self, Fiber};
use super::port::{Port, Protocol};
use super::steps::Action;
use crate::oracle;
use crate::program::execute::Kernel;
use crate::quiet::quietly;

/// Spaces that one run can have.
pub(crate) const SPACES: usize = 6;

/// What a CPU learns by being allowed to go on.
const STEP: u64 = 0x57e9;

/// Everything of one run.
pub(crate) struct World<'k> {
    pub(crate) machine: &'k RefCell<Machine>,
    pub(crate) tlb: &'k Tlb<'k>,
    pub(crate) kernel_map: &'k KernelMap<'k>,
    pub(crate) spaces: [OnceCell<Vm<'k>>; SPACES],
    pub(crate) sets: &'k [AtomicU64],
    /// What the kernel remembers.
    pub(crate) kernel: Kernel,
    /// Set when a run is given up: what still unwinds must not stop again.
    is_abandoned: Cell<bool>,
}

impl<'k> World<'k> {
    pub(crate) fn new(
        machine: &'k RefCell<Machine>,
        tlb: &'k Tlb<'k>,
        kernel_map: &'k KernelMap<'k>,
        sets: &'k [AtomicU64],
        kernel: Kernel,
    ) -> Self {
        let spaces = [const { OnceCell::new() }; SPACES];
        Self { machine, tlb, kernel_map, spaces, sets, kernel, is_abandoned: Cell::new(false) }
    }

    pub(crate) fn bus(&self) -> Bus<'k> {
        Bus { machine: self.machine }
    }

    /// Calls `body` with the protocol of one CPU.
    pub(crate) fn with_cpu<R>(&self, cpu: usize, body: impl FnOnce(Protocol<'_, 'k, '_>) -> R) -> R {
        let port = Port { world: self, cpu };
        body(self.tlb.cpu(CpuId(cpu as u32), &port))
    }

    /// Runs the bodies of all CPUs until all have ended or something was found.
    pub(crate) fn run(&self, body: fn(&World<'_>, usize)) {
        let mut fibers: Vec<_> = (0..self.tlb_cpus())
            .map(|cpu| Fiber::new(move || door::with_world(|world| body(world, cpu)).unwrap_or_default()))
            .collect();
        self.machine.borrow_mut().is_live = true;
        while let Some(action) = self.next() {
            self.machine.borrow_mut().current = action.cpu();
            let resumed = quietly(|| catch_unwind(AssertUnwindSafe(|| fibers[action.cpu()].resume())));
            if let Err(panic) = resumed {
                let mut machine = self.machine.borrow_mut();
                let finding = oracle::assertion(&machine, &panic);
                machine.report(finding);
            }
        }
        self.machine.borrow_mut().is_live = false;
        self.is_abandoned.set(true);
        fibers.iter_mut().for_each(Fiber::retire);
        self.machine.borrow_mut().cpus.iter_mut().for_each(|core| core.buffer.abandon());
    }

    fn tlb_cpus(&self) -> usize {
        self.machine.borrow().cpus.len()
    }

    fn next(&self) -> Option<Action> {
        let mut machine = self.machine.borrow_mut();
        if machine.is_over() {
            return None;
        }
        match machine.granted() {
            Some(action) => Some(action),
            None => machine.decide(),
        }
    }

    /// A point at which anything may happen before the running CPU goes on and does something.
    pub(crate) fn point(&self) {
        {
            let mut machine = self.machine.borrow_mut();
            let cpu = machine.current;
            machine.cpus[cpu].act();
        }
        self.pause();
    }

    /// The same for a CPU that only looks.
    pub(crate) fn pause(&self) {
        let cpu = {
            let machine = self.machine.borrow();
            if !machine.is_live || machine.cpus[machine.current].in_nmi {
                return;
            }
            machine.current
        };
        // The fiber was resumed for its very first step: that one is granted already.
        let mut granted = self.machine.borrow_mut().take_granted();
        loop {
            if granted.is_none() {
                granted = self.await_grant(cpu);
            }
            match granted.take() {
                Some(Action::Step(_)) => {
                    self.nmi(cpu);
                    return self.machine.borrow_mut().learn(STEP);
                }
                Some(_) if self.is_abandoned.get() => return,
                Some(action) => self.take_interrupts(cpu, action),
                None => return,
            }
        }
    }

    /// Decides, and lets others run until this CPU is granted something.
    fn await_grant(&self, cpu: usize) -> Option<Action> {
        let decided = self.machine.borrow_mut().decide();
        if decided.is_none_or(|action| action.cpu() != cpu) {
            fiber::suspend();
        }
        self.machine.borrow_mut().take_granted()
    }

    /// Called before each shared access of the protocol.
    pub(crate) fn access(&self, access: Access, address: usize) {
        if self.is_abandoned.get() {
            return;
        }
        if access == Access::Load {
            self.pause()
        } else {
            self.point()
        }
        let mut machine = self.machine.borrow_mut();
        if !machine.is_live {
            return;
        }
        machine.log_access(access, address);
        match access {
            Access::Load | Access::Store => {}
            Access::Rmw => {
                machine.drain();
                machine.learn_locked(address);
                machine.note_change();
            }
            Access::Fence => machine.drain(),
        }
    }

    pub(crate) fn delay(&self, word: Word, value: u64) -> bool {
        let mut machine = self.machine.borrow_mut();
        let is_delayed = machine.is_live && !self.is_abandoned.get();
        if is_delayed {
            machine.learn_word(word);
            machine.store_later(super::buffer::Place::Shared(word), value);
        }
        is_delayed
    }

    pub(crate) fn forward(&self, word: Word) -> Option<u64> {
        let mut machine = self.machine.borrow_mut();
        let own = machine.forward(word);
        if machine.is_live {
            let value = own.unwrap_or_else(|| door::read_word(word));
            machine.learn_word(word);
            machine.learn(value);
        }
        own
    }

    fn take_interrupts(&self, cpu: usize, action: Action) {
        let mode = {
            let mut machine = self.machine.borrow_mut();
            let step = machine.step;
            machine.log.interrupt(step, cpu);
            let core = &mut machine.cpus[cpu];
            core.act();
            let first = core.interrupts & core.interrupts.wrapping_neg();
            core.interrupts &= if action == Action::Interrupt(cpu) { 0 } else { !first };
            core.irqs = Irqs::Off;
            core.spins_since = core.spins_since.map(|_| u64::MAX);
            core.remember(0x1_0000 + u64::from(action == Action::Interrupt(cpu)));
            let inside = if core.mode == Mode::User { Mode::Kernel } else { core.mode };
            std::mem::replace(&mut core.mode, inside)
        };
        self.with_cpu(cpu, |handle| {
            let irqs = IrqsOff::assume();
            if mode == Mode::User {
                handle.enter_kernel(&irqs);
            }
            handle.answer(&irqs);
            if mode == Mode::User {
                handle.exit_to_user(&irqs);
            }
        });
        self.set_mode(cpu, mode);
        self.machine.borrow_mut().cpus[cpu].irqs = Irqs::On;
    }

    /// The CPU goes to user mode or comes back; what it may touch from now on is looked at.
    pub(crate) fn set_mode(&self, cpu: usize, mode: Mode) {
        let mut machine = self.machine.borrow_mut();
        machine.cpus[cpu].mode = mode;
        let finding = oracle::inspect(&machine, cpu);
        machine.report(finding);
    }

    /// A handler that nothing holds back, between any two steps, may touch user memory if the protocol says so (C-54).
    /// It changes nothing, so it comes every time, and what it could reach is looked at.
    fn nmi(&self, cpu: usize) {
        let Some(space) = self.kernel.runs(cpu).filter(|_| self.machine.borrow().cpus[cpu].runs_kernel_code()) else {
            return;
        };
        let vm = self.spaces[space].get().expect("a space that runs");
        self.machine.borrow_mut().cpus[cpu].in_nmi = true;
        let may_touch = self.with_cpu(cpu, |handle| handle.is_running(vm.space()));
        let mut machine = self.machine.borrow_mut();
        machine.cpus[cpu].in_nmi = false;
        let Some(finding) = may_touch.then(|| oracle::inspect_from_nmi(&machine, cpu)).flatten() else { return };
        let step = machine.step;
        machine.log.nmi(step, cpu);
        machine.report(finding);
    }
}
