//! The protocol's door to one CPU.

use tlbkit::{AddressSpace, Cpu, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, Late, SpaceToken, VirtAddr};

use super::Machine;
use super::core::Irqs;
use super::errata::Erratum;
use super::instructions::Exception;
use super::world::World;
use crate::oracle;

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
    fn execute(&self, name: &'static str, detail: u64, run: impl FnOnce(&mut Machine) -> Result<(), Exception>) {
        self.world.point();
        let mut machine = self.world.machine.borrow_mut();
        let step = machine.step;
        machine.log.instruction(step, self.cpu, name, detail);
        if let Err(exception) = run(&mut machine) {
            let finding = oracle::exception(&machine, self.cpu, exception);
            machine.report(finding);
        }
    }

    fn interrupt(&self, to: usize) {
        let mut machine = self.world.machine.borrow_mut();
        machine.interrupts_sent += 1;
        let is_lost = machine.errata.has(Erratum::InterruptLost) && machine.interrupts_sent.is_multiple_of(2);
        let step = machine.step;
        machine.log.sent(step, self.cpu, to);
        if !is_lost {
            machine.cpus[to].interrupts |= 1 << self.cpu;
            machine.note_change();
        }
    }
}

impl Hardware for Port<'_, '_> {
    fn features(&self) -> Features {
        self.world.machine.borrow().features
    }

    fn write_cr3(&self, cr3: Cr3) {
        self.execute(if cr3.keeps() { "CR3 (keep)" } else { "CR3" }, cr3.0 & !(1 << 63), |machine| {
            machine.write_cr3(self.cpu, cr3)?;
            let finding = oracle::inspect_load(machine, self.cpu);
            machine.report(finding);
            Ok(())
        });
    }

    fn invlpg(&self, va: VirtAddr) {
        self.execute("INVLPG", va.0, |machine| {
            machine.invlpg(self.cpu, va.0);
            Ok(())
        });
    }

    fn invpcid(&self, what: Invpcid) {
        let detail = if let Invpcid::Address(_, va) = what { va.0 } else { 0 };
        self.execute("INVPCID", detail, |machine| machine.invpcid(self.cpu, what));
    }

    fn toggle_pge(&self) {
        self.execute("CR4.PGE", 0, |machine| {
            if machine.cpus[self.cpu].irqs == Irqs::On && machine.is_live {
                return Err(Exception::Protection("CR4 changed with interrupts on (C-51)"));
            }
            machine.toggle_pge(self.cpu);
            Ok(())
        });
    }

    fn send_ipi(&self, to: CpuId) {
        self.interrupt(to.0 as usize);
    }

    fn send_ipi_to_others(&self) {
        let cpus = self.world.machine.borrow().cpus.len();
        (0..cpus).filter(|&to| to != self.cpu).for_each(|to| self.interrupt(to));
    }

    fn relax(&self) {
        {
            let mut machine = self.world.machine.borrow_mut();
            assert!(machine.is_live, "the machine's set-up waits for another CPU");
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

    fn irqs_enabled(&self) -> bool {
        let machine = self.world.machine.borrow();
        machine.cpus[self.cpu].irqs == Irqs::On
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let set = |irqs| {
            let mut machine = self.world.machine.borrow_mut();
            std::mem::replace(&mut machine.cpus[self.cpu].irqs, irqs)
        };
        let before = set(Irqs::Off);
        let result = f(&IrqsOff::assume());
        set(before);
        result
    }

    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        let space = self.world.spaces.get(token.0 as usize).and_then(|space| space.get());
        space.expect("a token that was given out").space()
    }

    fn event(&self, event: Event) {
        let mut machine = self.world.machine.borrow_mut();
        let (step, id) = (machine.step, machine.cpus[self.cpu].op as usize);
        machine.log.event(step, self.cpu, event);
        match event {
            Event::FlushBegin(_) => machine.ops[id].flush = (Some(step), None),
            Event::FlushEnd => {
                machine.ops[id].flush.1 = Some(step);
                machine.cpus[self.cpu].waits_for = None;
            }
            Event::Waiting(late) => machine.cpus[self.cpu].waits_for = Some(late.0),
            Event::LastLazyReference(token) => {
                drop(machine);
                self.world.kernel.owe_reclaim(self.cpu, token.0 as usize);
            }
            _ => {}
        }
    }

    fn now_cycles(&self) -> u64 {
        self.world.machine.borrow().step
    }
}
