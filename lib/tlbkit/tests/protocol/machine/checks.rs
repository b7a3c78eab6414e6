//! What the world adds to its CPUs: each instruction is checked as it is executed.

use tlbkit::sync::AtomicU64;
use tlbkit::{
    Acknowledgement, AddressSpace, CpuId, Cr3, Entered, Event, Hardware, KernelFlushes, MAX_ASIDS, Pcid, PhysAddr,
    SpaceToken, Tags, Tlb,
};
use tlbkit_arch::Instruction;
use tlbkit_testkit::{Apics, Machine, TestCpu};

use super::memory::{Fate, KERNEL_ROOT, Owner, is_user_half, owner_of};
use super::{Core, Mode, Program, World};

impl World {
    fn nmi(&'static self, core: &Core) {
        if let Some(nmi) = &*core.kept.nmi.borrow() {
            nmi(self);
        }
    }

    /// INV-8: tag 0 is the kernel's own, bit 11 the user half's; without tags CR3 is the plain root.
    fn check_tag(&self, core: &Core, cr3: Cr3) {
        if !core.features.pcid || self.tlb.policy().tags == Tags::Off {
            return assert_eq!(cr3.0, cr3.root().0, "a tag or the no-flush bit where there are no tags");
        }
        let slot = cr3.pcid().0 & !Pcid::USER_BIT;
        assert_eq!(slot == 0, cr3.root() == KERNEL_ROOT, "INV-8: {cr3:?}");
        let is_shared = core.broadcast_pages.get().is_some() && usize::from(slot) > MAX_ASIDS;
        let is_own = usize::from(slot) <= self.tlb.policy().asids();
        assert!(is_own || is_shared, "INV-8: a tag beyond the slots: {cr3:?}");
        assert_eq!(cr3.pcid().0 & Pcid::USER_BIT != 0, is_user_half(cr3.root()), "INV-8: halves mixed up: {cr3:?}");
    }

    /// INV-12 and INV-10: a load that keeps finds under its tag nothing that was freed, and nobody else's.
    fn check_kept(&self, core: &Core, cr3: Cr3) {
        let memory = self.memory.borrow();
        for (entry, stamp) in core.tlb.borrow().translations.iter().filter(|(held, _)| held.serves(cr3.pcid())) {
            assert!(!memory.is_freed(*stamp), "INV-12: cpu{} keeps a freed translation: {entry:x?}", core.id.0);
            let owner = memory.owner(*stamp);
            let is_own = owner == Owner::Kernel || owner == owner_of(cr3.root());
            assert!(is_own, "INV-8: cpu{} keeps another space's: {entry:x?}", core.id.0);
        }
    }
}

impl Machine for &'static World {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;
    type Entry = usize;
    type Table = usize;
    type Kept = Program;

    fn tlb(&self) -> &Tlb<'_> {
        self.tlb
    }

    fn apics(&self) -> &Apics {
        &self.apics
    }

    fn with_space_of<R>(self, token: SpaceToken, f: impl FnOnce(&AddressSpace) -> R) -> R {
        let index = token.0 as usize;
        assert_ne!(self.memory.borrow().roots[index], Fate::Freed, "asked for a dead space");
        f(self.at(index))
    }

    fn root_here(self, core: &Core, space: &AddressSpace) -> PhysAddr {
        PhysAddr(space.root().0 + core.kept.root_offset.get())
    }

    fn before(self, core: &Core, instruction: Instruction) {
        if matches!(instruction, Instruction::WriteCr3(_) | Instruction::Invlpg(_)) {
            self.nmi(core);
        }
        let Instruction::WriteCr3(cr3) = instruction else { return };
        self.check_tag(core, cr3);
        if let Owner::Space(space) = owner_of(cr3.root()) {
            assert_eq!(self.memory.borrow().roots[space], Fate::Live, "loaded the root of a dead space");
        }
    }

    fn after(self, core: &Core, instruction: Instruction) {
        if let Instruction::WriteCr3(cr3) = instruction
            && core.features.pcid
            && cr3.keeps()
        {
            self.check_kept(core, cr3);
        }
    }

    fn broadcast(self, core: &Core, instruction: Instruction) {
        self.nmi(core);
        self.cpus.iter().for_each(|core| core.tlb.borrow_mut().execute(instruction, core.current_tag()));
    }

    fn interrupt(self, to: CpuId) {
        self.send_interrupt(to);
    }

    fn handle(self, core: &Core) {
        let (cpu, mode) = (core.id.0 as usize, core.kept.mode.get());
        self.enter_kernel(cpu);
        core.with_irqs_off(|irqs| {
            let is_deferring = core.kernel_flushes.get() == KernelFlushes::AtEntry
                && self.cpu(cpu).do_deferred_flushes(irqs) == Entered::Deferring;
            self.cpu(cpu).answer(irqs);
            if is_deferring {
                self.cpu(cpu).defer_kernel_flushes(irqs);
            }
        });
        if mode == Mode::User {
            self.exit_to_user(cpu);
        }
    }

    fn relax(self, core: &TestCpu<Self>) {
        self.wait_turn(core);
    }

    fn event(self, core: &Core, event: Event) {
        match event {
            Event::LastLazyReference(token) => self.unreferenced(token.0 as usize),
            Event::AnswerEnd(initiator) if self.tlb.policy().acknowledgement == Acknowledgement::AfterFlush => {
                let mut is_awaited = false;
                self.cpu(initiator.0 as usize).missing().for_each(|cpu| is_awaited |= cpu == core.id);
                assert!(is_awaited || !core.is_online.get(), "cpu{} was believed before its answer's end", core.id.0);
            }
            _ => {}
        }
    }
}
