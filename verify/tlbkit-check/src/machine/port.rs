//! The protocol's hardware interface to one CPU: it stops before each shared access and each instruction, for the
//! scheduler to decide which CPU goes on.

use std::num::NonZeroU32;
use tlbkit::sync::{Access, AtomicU64, Word};
use tlbkit::{
    AddressSpace, Cpu, CpuId, Cr3, Entered, Event, Features, Hardware, HostExtent, HostFlush, Invlpgb, Invpcid,
    IrqsOff, KernelFlushes, Late, PhysAddr, SpaceToken, VirtAddr,
};

use super::Machine;
use super::action::Action;
use super::buffer::Place;
use super::core::{Irqs, Mode};
use super::errata::Erratum;
use super::fiber;
use super::observation::{Exception, Observation};
use super::words::read_word;
use super::world::World;
use crate::program::kernel::End;

/// One CPU as the protocol sees it.
#[derive(Clone, Copy)]
pub(crate) struct Port<'w, 'k> {
    pub(crate) world: &'w World<'k>,
    pub(crate) cpu: usize,
}

/// The protocol of one CPU.
pub(crate) type Protocol<'t, 'k, 'w> = Cpu<'t, 'k, Port<'w, 'k>>;

impl Port<'_, '_> {
    /// One instruction, with a point before it.
    fn execute(&self, name: &'static str, operand: u64, run: impl FnOnce(&mut Machine) -> Result<(), Exception>) {
        self.world.point();
        let mut machine = self.world.machine.borrow_mut();
        machine.log(self.cpu, || format!("{name} {operand:#x}"));
        if let Err(exception) = run(&mut machine) {
            machine.report(&Observation::InstructionFaulted { cpu: self.cpu, exception });
        }
    }

    /// An interrupt that is on its way may come just before interrupts go off.
    fn take_pending(&self) {
        let is_pending = {
            let machine = self.world.machine.borrow();
            machine.is_live && machine.cpus[self.cpu].irqs == Irqs::On && machine.cpus[self.cpu].interrupts != 0
        };
        if is_pending {
            self.world.pause();
        }
    }

    /// A locked operation on the host's word about CPU `of`, or a call of the host; true if it flushes that CPU.
    fn ask_host(&self, of: usize, what: HostExtent) -> bool {
        self.world.point();
        let mut machine = self.world.machine.borrow_mut();
        machine.drain();
        let is_spared = machine.flush_by_host(of, what);
        machine.learn(u64::from(is_spared));
        machine.log(self.cpu, || format!("asks the host to flush CPU {of}: {}", if is_spared { "yes" } else { "no" }));
        is_spared
    }

    fn interrupt(&self, to: usize) {
        let mut machine = self.world.machine.borrow_mut();
        machine.interrupts_sent += 1;
        let is_lost = machine.errata.has(Erratum::InterruptLost) && machine.interrupts_sent.is_multiple_of(2);
        machine.log(self.cpu, || format!("interrupts CPU {to}"));
        if !is_lost {
            machine.cpus[to].interrupts |= 1 << self.cpu;
            machine.record_change();
        }
    }
}

impl<'k> Hardware for Port<'_, 'k> {
    type Set = &'k [AtomicU64];
    type Token = SpaceToken;

    fn features(&self) -> Features {
        self.world.machine.borrow().features
    }

    fn write_cr3(&self, cr3: Cr3) {
        self.execute(if cr3.keeps() { "CR3 (keep)" } else { "CR3" }, cr3.0 & !(1 << 63), |machine| {
            machine.write_cr3(self.cpu, cr3)
        });
    }

    fn invlpg(&self, va: VirtAddr) {
        self.execute("INVLPG", va.0, |machine| {
            machine.invlpg(self.cpu, va.0);
            Ok(())
        });
    }

    fn invpcid(&self, what: Invpcid) {
        let operand = if let Invpcid::Address(_, va) = what { va.0 } else { 0 };
        self.execute("INVPCID", operand, |machine| machine.invpcid(self.cpu, what));
    }

    fn toggle_pge(&self) {
        self.execute("CR4.PGE", 0, |machine| {
            if machine.cpus[self.cpu].irqs == Irqs::On && machine.is_live {
                return Err(Exception("#GP: CR4 changed with interrupts on (C-51)"));
            }
            machine.toggle_pge(self.cpu);
            Ok(())
        });
    }

    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        self.world.machine.borrow().broadcast_pages
    }

    fn invlpgb(&self, what: Invlpgb) {
        let (name, operand) = match what {
            Invlpgb::Pages { pcid, first, .. } => ("INVLPGB", first.0 | u64::from(pcid.0)),
            Invlpgb::PagesOfAll { first, .. } => ("INVLPGB (all PCIDs)", first.0),
            Invlpgb::Single(pcid) => ("INVLPGB (a PCID)", u64::from(pcid.0)),
            Invlpgb::All => ("INVLPGB (everything)", 0),
            Invlpgb::AllAndGlobals => ("INVLPGB (everything, globals)", 0),
        };
        self.execute(name, operand, |machine| machine.invlpgb(self.cpu, what));
    }

    fn tlbsync(&self) {
        self.execute("TLBSYNC", 0, |machine| machine.tlbsync(self.cpu));
    }

    fn send_ipi(&self, to: CpuId) {
        self.interrupt(to.0 as usize);
    }

    fn send_ipi_to_others(&self) {
        let cpus = self.world.machine.borrow().cpus.len();
        (0..cpus).filter(|&to| to != self.cpu).for_each(|to| self.interrupt(to));
    }

    fn directories(&self) -> tlbkit::Directories {
        self.world.kernel.directories()
    }

    fn acknowledgement(&self) -> tlbkit::Acknowledgement {
        self.world.tlb.policy().acknowledgement
    }

    fn host_flush(&self) -> HostFlush {
        self.world.machine.borrow().host.promise()
    }

    fn flush_by_host(&self, first: CpuId, cpus: u64, what: HostExtent) -> u64 {
        let named = (0..u64::BITS as usize).filter(|bit| cpus >> bit & 1 != 0);
        named.filter(|bit| !self.ask_host(first.0 as usize + bit, what)).fold(0, |bits, bit| bits | 1 << bit)
    }

    fn kernel_flushes(&self) -> KernelFlushes {
        self.world.machine.borrow().kernel_flushes
    }

    fn relax(&self) {
        {
            let mut machine = self.world.machine.borrow_mut();
            if !machine.is_live {
                drop(machine);
                return self.world.answer_all();
            }
            let changes = machine.changes;
            machine.cpus[self.cpu].spin(changes);
        }
        self.world.pause();
        self.world.machine.borrow_mut().cpus[self.cpu].spins_since = None;
    }

    fn patience_turns(&self) -> u32 {
        self.world.machine.borrow().patience_turns
    }

    fn late(&self, _cpu: CpuId) -> Late {
        self.world.machine.borrow().late
    }

    /// A CPU that never answers is found otherwise: the exploration does not end.
    fn patience_rounds(&self) -> u32 {
        u32::MAX
    }

    fn irqs_enabled(&self) -> bool {
        let machine = self.world.machine.borrow();
        machine.cpus[self.cpu].irqs == Irqs::On
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        self.take_pending();
        let set = |irqs| {
            let mut machine = self.world.machine.borrow_mut();
            std::mem::replace(&mut machine.cpus[self.cpu].irqs, irqs)
        };
        let before = set(Irqs::Off);
        let result = f(&IrqsOff::assume());
        set(before);
        result
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        let space = self.world.spaces.get(token.0 as usize).and_then(|space| space.get());
        f(space.expect("a token that was given out").space())
    }

    fn root_here(&self, space: &AddressSpace<Self::Set>) -> PhysAddr {
        let vm = self.world.spaces.get(space.token().0 as usize).and_then(|space| space.get());
        vm.map_or(space.root(), |vm| vm.root_on(&self.world.bus(), CpuId(self.cpu as u32)))
    }

    fn event(&self, event: Event) {
        let mut machine = self.world.machine.borrow_mut();
        let (step, id) = (machine.step, machine.cpus[self.cpu].op as usize);
        if !matches!(event, Event::Waiting(_)) {
            machine.log(self.cpu, || format!("({event:?})"));
        }
        match event {
            Event::FlushBegin(_) => machine.ops[id].flush = (Some(step), None),
            Event::FlushEnd => {
                machine.ops[id].flush.1 = Some(step);
                machine.cpus[self.cpu].waits_for = None;
            }
            Event::Waiting(late) => machine.cpus[self.cpu].waits_for = Some(late.0),
            Event::LastLazyReference(_) if machine.errata.has(Erratum::NoticeForgotten) => {}
            Event::LastLazyReference(token) => {
                drop(machine);
                self.world.kernel.set_end(token.0 as usize, End::Notified);
                self.world.kernel.add_to_reclaim(self.cpu, token.0 as usize);
            }
            _ => {}
        }
    }

    fn now_cycles(&self) -> u64 {
        self.world.machine.borrow().step
    }
}

/// What a CPU learns by being allowed to go on.
const STEP: u64 = 0x57e9;

impl<'k> World<'k> {
    /// Calls `body` with the protocol of one CPU.
    pub(crate) fn with_cpu<R>(&self, cpu: usize, body: impl FnOnce(Protocol<'_, 'k, '_>) -> R) -> R {
        let port = Port { world: self, cpu };
        body(self.tlb.cpu(CpuId(cpu as u32), &port))
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

    /// A point at which the CPU only looks: other CPUs may act.
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
                Some(Action::Nmi(_)) => self.take_nmi(cpu),
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
        if let Some(space) = self.dead_space_at(address) {
            machine.report(&Observation::FreedSpaceAccessed { space });
        }
        let (step, cpu) = (machine.step, machine.current);
        machine.log.add_access(step, cpu, access, address);
        match access {
            Access::Load | Access::Store => {}
            Access::Rmw => {
                machine.drain();
                machine.learn_locked(address);
                machine.record_change();
            }
            Access::Fence => machine.drain(),
        }
    }

    /// The space that was said to be free, and has a word at `address`.
    fn dead_space_at(&self, address: usize) -> Option<usize> {
        self.kernel.ended(End::Notified).find(|&space| {
            let space = self.spaces[space].get().expect("a space that has ended").space();
            let (start, words) = (std::ptr::from_ref(space).addr(), space.cpus().words().as_ptr_range());
            (start..start + size_of_val(space)).contains(&address)
                || (words.start.addr()..words.end.addr()).contains(&address)
        })
    }

    pub(crate) fn delay(&self, word: Word, value: u64) -> bool {
        let mut machine = self.machine.borrow_mut();
        let is_delayed = machine.is_live && !self.is_abandoned.get();
        if is_delayed {
            machine.learn_word(word);
            machine.store_later(Place::Shared(word), value);
        }
        is_delayed
    }

    pub(crate) fn forward(&self, word: Word) -> Option<u64> {
        let mut machine = self.machine.borrow_mut();
        let own = machine.forward(word);
        if machine.is_live {
            let value = own.unwrap_or_else(|| read_word(word));
            machine.learn_word(word);
            machine.learn(value);
        }
        own
    }

    /// Before the programs begin and after their end only one CPU executes: those that it interrupts answer at once.
    fn answer_all(&self) {
        let cpus = self.machine.borrow().cpus.len();
        for cpu in 0..cpus {
            let interrupts = std::mem::take(&mut self.machine.borrow_mut().cpus[cpu].interrupts);
            if interrupts != 0 {
                self.with_cpu(cpu, |handle| handle.hardware().with_irqs_off(|irqs| handle.answer(irqs)));
            }
        }
    }

    fn take_interrupts(&self, cpu: usize, action: Action) {
        let mode = {
            let mut machine = self.machine.borrow_mut();
            machine.log(cpu, || "takes the interrupt".to_owned());
            let core = &mut machine.cpus[cpu];
            core.act();
            let first = core.interrupts & core.interrupts.wrapping_neg();
            core.interrupts &= if action == Action::Interrupt(cpu) { 0 } else { !first };
            core.irqs = Irqs::Off;
            core.spins_since = core.spins_since.map(|_| u64::MAX);
            core.remember(0x1_0000 + u64::from(action == Action::Interrupt(cpu)));
            let inside = match core.mode {
                Mode::User => Mode::Kernel,
                Mode::Undisturbed => Mode::Between,
                mode => mode,
            };
            std::mem::replace(&mut core.mode, inside)
        };
        self.with_cpu(cpu, |handle| {
            let irqs = IrqsOff::assume();
            match mode {
                Mode::User => handle.enter_kernel(&irqs),
                Mode::Undisturbed => self.catch_up(cpu, handle, &irqs),
                _ => {}
            }
            handle.answer(&irqs);
            match mode {
                Mode::User => handle.exit_to_user(&irqs),
                Mode::Undisturbed => self.defer(cpu, handle, &irqs),
                _ => {}
            }
        });
        self.set_mode(cpu, mode);
        self.machine.borrow_mut().cpus[cpu].irqs = Irqs::On;
    }

    /// The kernel's last steps on the way to a program that is not to be disturbed.
    pub(crate) fn defer(&self, cpu: usize, handle: Protocol<'_, 'k, '_>, irqs: &IrqsOff) {
        self.set_mode(cpu, Mode::Between);
        handle.defer_kernel_flushes(irqs);
        handle.exit_to_user(irqs);
    }

    /// Its first steps on the way back.
    pub(crate) fn catch_up(&self, cpu: usize, handle: Protocol<'_, 'k, '_>, irqs: &IrqsOff) {
        self.set_mode(cpu, Mode::Between);
        handle.enter_kernel(irqs);
        handle.do_deferred_flushes(irqs);
        self.set_mode(cpu, Mode::Kernel);
    }

    /// A non-maskable interrupt between any two steps, whose handler uses the kernel's memory.
    fn take_nmi(&self, cpu: usize) {
        let (mode, irqs) = {
            let mut machine = self.machine.borrow_mut();
            machine.log(cpu, || "takes a non-maskable interrupt".to_owned());
            machine.unplanned += 1;
            let core = &mut machine.cpus[cpu];
            core.act();
            core.handles_nmi = true;
            core.spins_since = core.spins_since.map(|_| u64::MAX);
            core.remember(0x2_0000);
            (std::mem::replace(&mut core.mode, Mode::Between), std::mem::replace(&mut core.irqs, Irqs::Off))
        };
        self.with_cpu(cpu, |handle| {
            let off = IrqsOff::assume();
            let entered = handle.do_deferred_flushes(&off);
            self.set_mode(cpu, Mode::Kernel);
            self.point();
            self.set_mode(cpu, Mode::Between);
            if entered == Entered::Deferring {
                handle.defer_kernel_flushes(&off);
            }
        });
        self.set_mode(cpu, mode);
        let core = &mut self.machine.borrow_mut().cpus[cpu];
        (core.irqs, core.handles_nmi) = (irqs, false);
    }

    /// The CPU goes to user mode or comes back; what it may touch from now on is looked at.
    pub(crate) fn set_mode(&self, cpu: usize, mode: Mode) {
        let mut machine = self.machine.borrow_mut();
        machine.cpus[cpu].mode = mode;
        machine.report(&Observation::ReachChanged { cpu });
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
        if may_touch {
            machine.report(&Observation::UserMemoryAllowed { cpu });
        }
        if machine.finding.is_some() {
            machine.log(cpu, || "takes a non-maskable interrupt".to_owned());
        }
    }
}
