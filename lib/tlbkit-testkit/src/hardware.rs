//! What a CPU in software does for the protocol; an instruction that a real CPU would refuse ends the test.

use std::num::NonZeroU32;

use tlbkit::{
    Acknowledgement, AddressSpace, CpuId, Cr3, Directories, Event, Features, Hardware, Invlpgb, Invpcid, IrqsOff, Late,
    VirtAddr,
};
use tlbkit::{HostExtent, HostFlush, KernelFlushes, PhysAddr};
use tlbkit_arch::{Instruction, is_canonical};

use crate::cpu::{Did, Machine, TestCpu};

impl<M: Machine> Hardware for TestCpu<M> {
    type Set = M::Set;
    type Token = M::Token;

    fn features(&self) -> Features {
        self.features
    }

    fn write_cr3(&self, cr3: Cr3) {
        self.execute(Did::Cr3(cr3), Instruction::WriteCr3(cr3));
    }

    fn invlpg(&self, va: VirtAddr) {
        self.execute(Did::Invlpg(va.0), Instruction::Invlpg(va));
    }

    fn invpcid(&self, what: Invpcid) {
        assert!(self.features.invpcid, "no INVPCID here");
        if let Invpcid::Address(pcid, _) | Invpcid::Single(pcid) = what {
            assert!(self.features.pcid || pcid.0 == 0, "a general protection fault: tags are off");
        }
        if let Invpcid::Address(_, va) = what {
            assert!(is_canonical(va), "C-31: a general protection fault: {va:?} is not canonical");
        }
        self.execute(Did::Invpcid(what), Instruction::Invpcid(what));
    }

    fn toggle_pge(&self) {
        self.execute(Did::TogglePge, Instruction::TogglePge);
    }

    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        self.broadcast_pages.get()
    }

    fn invlpgb(&self, what: Invlpgb) {
        self.here.set(self.moves_to.take().or(self.here.get()));
        self.log.borrow_mut().push(Did::Invlpgb(what));
        self.unsynced.borrow_mut().push(what);
    }

    fn tlbsync(&self) {
        self.log.borrow_mut().push(Did::Tlbsync);
        self.unsynced.take().into_iter().for_each(|what| self.machine.broadcast(self, Instruction::Invlpgb(what)));
    }

    fn send_ipi(&self, to: CpuId) {
        self.log.borrow_mut().push(Did::Ipi(to.0));
        assert_ne!(to, self.id, "an interrupt to itself");
        self.machine.interrupt(to);
    }

    fn send_ipi_to_others(&self) {
        self.log.borrow_mut().push(Did::IpiToOthers);
        let machine = self.machine;
        machine.apics().cpus().filter(|&to| to != self.id).for_each(|to| machine.interrupt(to));
    }

    fn directories(&self) -> Directories {
        self.directories.get()
    }

    fn root_here(&self, space: &AddressSpace<M::Set>) -> PhysAddr {
        self.machine.root_here(self, space)
    }

    fn acknowledgement(&self) -> Acknowledgement {
        self.machine.tlb().policy().acknowledgement
    }

    fn host_flush(&self) -> HostFlush {
        self.host_flush.get()
    }

    fn flush_by_host(&self, first: CpuId, cpus: u64, what: HostExtent) -> u64 {
        self.log.borrow_mut().push(Did::ByHost(cpus << first.0, what));
        cpus & !(self.left_to_host.get() >> first.0)
    }

    fn kernel_flushes(&self) -> KernelFlushes {
        self.kernel_flushes.get()
    }

    fn relax(&self) {
        self.machine.relax(self);
    }

    fn glances(&self) -> u32 {
        self.glances.get()
    }

    fn patience_turns(&self) -> u32 {
        self.patience_turns.get()
    }

    fn late(&self, cpu: CpuId) -> Late {
        self.was_late.borrow_mut().push(cpu.0);
        self.about_late.get()
    }

    fn patience_rounds(&self) -> u32 {
        self.patience_rounds.get()
    }

    fn this_cpu(&self) -> Option<CpuId> {
        self.here.get()
    }

    fn cr3(&self) -> Option<Cr3> {
        Some(self.cr3.get())
    }

    fn irqs_enabled(&self) -> bool {
        self.irqs.get()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        self.here.set(self.moves_to.take().or(self.here.get()));
        let before = self.irqs.replace(false);
        let result = f(&IrqsOff::assume());
        self.irqs.set(before);
        result
    }

    fn with_space_of<R>(&self, token: M::Token, f: impl FnOnce(&AddressSpace<M::Set>) -> R) -> R {
        self.machine.with_space_of(token, f)
    }

    fn event(&self, event: Event) {
        self.log.borrow_mut().push(Did::Event(event));
        self.machine.event(self, event);
    }

    fn now_cycles(&self) -> u64 {
        self.clock_cycles.set(self.clock_cycles.get() + 100);
        self.clock_cycles.get()
    }
}
