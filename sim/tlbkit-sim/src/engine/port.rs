//! The door of the protocol to one simulated CPU.

use std::cell::Cell;

use tlbkit::{AddressSpace, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, LocalFlush, SpaceToken, VirtAddr};

use super::core::{Arrival, Core, Irqs};
use super::interrupt::Vector;
use super::ledger::Cause;
use super::world::World;

/// One CPU as the protocol sees it.
#[derive(Clone, Copy)]
pub(crate) struct Port {
    pub(crate) world: &'static World,
    pub(crate) cpu: usize,
}

impl Port {
    fn core(&self) -> &'static Core {
        &self.world.cores[self.cpu]
    }

    /// Before the first cycle of the run nothing costs anything.
    fn is_live(&self) -> bool {
        self.world.running_cpu().is_some()
    }

    fn charge(&self, cycles: u64) {
        if self.is_live() {
            let core = self.core();
            core.spin.borrow_mut().disturb();
            core.advance(cycles);
        }
    }

    fn ipi(&self, to: usize) {
        self.core().count_ipis(|ipis| ipis.sent += 1);
        self.world.insight.ipi(self.world, to);
        if !self.world.sabotage.loses_interrupt() {
            self.world.deliver(to, Vector::Flush);
        }
    }
}

impl Hardware for Port {
    fn features(&self) -> Features {
        self.world.features
    }

    fn write_cr3(&self, cr3: Cr3) {
        let costs = &self.world.costs;
        self.charge(if cr3.keeps() && self.world.features.pcid { costs.cr3_keep } else { costs.cr3_flush });
        let mut mmu = self.core().mmu.borrow_mut();
        self.world.insight.cr3(&mut mmu, |mmu| mmu.write_cr3(cr3));
    }

    fn invlpg(&self, va: VirtAddr) {
        self.charge(self.world.costs.invlpg);
        if !self.world.sabotage.loses_invalidation() {
            let mut mmu = self.core().mmu.borrow_mut();
            self.world.insight.page(&mut mmu, |mmu| mmu.invlpg(va));
        }
    }

    fn invpcid(&self, what: Invpcid) {
        let costs = &self.world.costs;
        self.charge(match what {
            Invpcid::Address(..) => costs.invpcid_address,
            Invpcid::Single(_) => costs.invpcid_single,
            Invpcid::AllAndGlobals | Invpcid::All => costs.invpcid_all,
        });
        if self.world.sabotage.loses_invalidation() {
            return;
        }
        let mut mmu = self.core().mmu.borrow_mut();
        let flush = |mmu: &mut crate::mmu::Mmu| mmu.invpcid(what).expect("a tag that the protocol gave out");
        match what {
            Invpcid::Address(..) => self.world.insight.page(&mut mmu, flush),
            _ => self.world.insight.everything(&mut mmu, flush),
        }
    }

    fn toggle_pge(&self) {
        self.charge(self.world.costs.cr4_pge_toggle);
        let mut mmu = self.core().mmu.borrow_mut();
        self.world.insight.everything(&mut mmu, crate::mmu::Mmu::toggle_pge);
    }

    fn send_ipi(&self, to: CpuId) {
        self.core().within(Cause::FlushSend, || self.charge(self.world.costs.ipi_send));
        self.ipi(to.0 as usize);
        self.world.sync(0);
    }

    fn send_ipi_to_others(&self) {
        self.core().within(Cause::FlushSend, || self.charge(self.world.costs.ipi_send_shorthand));
        for to in (0..self.world.cores.len()).filter(|&to| to != self.cpu) {
            self.ipi(to);
        }
        self.world.sync(0);
    }

    fn relax(&self) {
        self.world.relax();
    }

    fn irqs_enabled(&self) -> bool {
        self.core().irqs.get() == Irqs::On
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let core = self.core();
        let before = core.irqs.replace(Irqs::Off);
        // Telling needs interrupts on: with them off, in the midst of it, comes the local half.
        let cause = if core.cause.get() == Cause::FlushSend { Cause::FlushLocal } else { core.cause.get() };
        let result = core.within(cause, || f(&IrqsOff::assume()));
        core.irqs.set(before);
        if self.is_live() {
            self.world.forget_limits();
            if core.takes_at() <= core.clock.get() {
                self.world.take_interrupts(self.cpu);
            }
        }
        result
    }

    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        self.world.spaces.borrow()[token.0 as usize].expect("a space that was made").space()
    }

    fn event(&self, event: Event) {
        if self.is_live() {
            self.attribute(event);
            self.world.insight.event(self.world, self.cpu, event);
        }
    }

    fn now_cycles(&self) -> u64 {
        self.core().clock.get()
    }
}

impl Port {
    /// A flush has phases, each with its own account; it ends on the one that it began on. Raising the generation and
    /// looking whether others are there goes with the half that the policy does first. Telling them ends when the first
    /// of them is found not to have answered.
    fn attribute(&self, event: Event) {
        let core = self.core();
        match event {
            Event::FlushBegin(_) => {
                let first = match self.world.tlb.policy().local_flush {
                    LocalFlush::BeforeRemote => Cause::FlushLocal,
                    LocalFlush::WhileRemote => Cause::FlushSend,
                };
                self.outer().set(core.cause.replace(first));
                core.advance_for(Cause::FlushLocal, self.world.costs.flush_entry);
            }
            Event::FlushLocalDone => core.cause.set(Cause::FlushSend),
            Event::Waiting(_) => core.cause.set(Cause::FlushWait),
            Event::FlushEnd => core.cause.set(self.outer().get()),
            Event::SwitchKept => core.arrival.set(Arrival::Kept),
            Event::SwitchFlushed => core.arrival.set(Arrival::Flushed),
            Event::LastLazyReference(token) => self.world.kernel.unreferenced.borrow_mut().push(token.0 as usize),
            _ => {}
        }
    }

    fn outer(&self) -> &'static Cell<Cause> {
        &self.core().outer
    }
}
