//! One CPU: the instructions of [`Hardware`], checked as they are executed.

use std::cell::{Cell, OnceCell, RefCell};

use tlbkit::{AddressSpace, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, Late, Pcid, SpaceToken};
use tlbkit::{Tags, VirtAddr, sync::AtomicU64};
use tlbkit_arch::store::Store;
use tlbkit_arch::{CurrentTag, Instruction, is_canonical};

use super::World;
use super::memory::{Fate, KERNEL_ROOT, Owner, is_user_half, owner_of};

/// What a CPU has executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Did {
    Cr3(Cr3),
    Invlpg(u64),
    Invpcid(Invpcid),
    TogglePge,
    Ipi(u32),
    IpiToOthers,
    Event(Event),
}

/// Whether the program or the kernel executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    User,
    Kernel,
}

/// A CPU and its TLB.
pub(crate) struct Core {
    pub(crate) id: u32,
    pub(crate) world: OnceCell<&'static World>,
    pub(crate) features: Features,
    pub(crate) cr3: Cell<Cr3>,
    pub(crate) irqs: Cell<bool>,
    pub(crate) is_online: Cell<bool>,
    pub(crate) has_ipi: Cell<bool>,
    pub(crate) mode: Cell<Mode>,
    /// The space that the program here runs in; none when lazy or in the kernel's tables.
    pub(crate) task: Cell<Option<usize>>,
    /// Each translation with its stamp, each path with that of its table.
    pub(crate) tlb: RefCell<Store<usize, usize>>,
    pub(crate) log: RefCell<Vec<Did>>,
    pub(crate) clock_cycles: Cell<u64>,
    /// What to do about late CPUs, asked every eight turns; and which were late.
    pub(crate) about_late: Cell<Late>,
    pub(crate) was_late: RefCell<Vec<u32>>,
    pub(crate) patience_rounds: Cell<u32>,
    /// Looks with which a wait begins.
    pub(crate) glances: Cell<u32>,
    /// Where the code runs that calls as this CPU, if the kernel can tell.
    pub(crate) here: Cell<Option<CpuId>>,
    /// Where the task is moved to just before interrupts are off the next time.
    pub(crate) moves_to: Cell<Option<CpuId>>,
    /// What an NMI does that arrives just before each write of CR3.
    pub(crate) nmi: RefCell<Option<Nmi>>,
}

/// What an NMI does.
pub(crate) type Nmi = Box<dyn Fn(&'static World)>;

impl Core {
    pub(crate) fn new(id: u32, features: Features) -> Self {
        Self {
            id,
            world: OnceCell::new(),
            features,
            cr3: Cell::new(Cr3::flushing(KERNEL_ROOT, Pcid::KERNEL)),
            irqs: Cell::new(true),
            is_online: Cell::new(false),
            has_ipi: Cell::new(false),
            mode: Cell::new(Mode::Kernel),
            task: Cell::new(None),
            tlb: RefCell::default(),
            log: RefCell::default(),
            clock_cycles: Cell::new(0),
            about_late: Cell::new(Late::Wait),
            was_late: RefCell::default(),
            patience_rounds: Cell::new(u32::MAX),
            glances: Cell::new(0),
            here: Cell::new(None),
            moves_to: Cell::new(None),
            nmi: RefCell::default(),
        }
    }

    pub(crate) fn world(&self) -> &'static World {
        self.world.get().expect("a core belongs to a world")
    }

    fn note(&self, did: Did) {
        self.log.borrow_mut().push(did);
    }

    fn has_tags(&self) -> bool {
        self.features.pcid && self.world().tlb.policy().tags != Tags::Off
    }

    fn execute(&self, instruction: Instruction) {
        let current = if self.features.pcid { CurrentTag::Loaded(self.cr3.get().pcid()) } else { CurrentTag::Off };
        self.tlb.borrow_mut().execute(instruction, current);
    }

    /// INV-8: tag 0 is the kernel's own, bit 11 the user half's; without tags CR3 is the plain root.
    fn check_tag(&self, cr3: Cr3) {
        if !self.has_tags() {
            return assert_eq!(cr3.0, cr3.root().0, "a tag or the no-flush bit where there are no tags");
        }
        let slot = cr3.pcid().0 & !Pcid::USER_BIT;
        assert_eq!(slot == 0, cr3.root() == KERNEL_ROOT, "INV-8: {cr3:?}");
        assert!(usize::from(slot) <= self.world().tlb.policy().asids(), "INV-8: a tag beyond the slots: {cr3:?}");
        assert_eq!(cr3.pcid().0 & Pcid::USER_BIT != 0, is_user_half(cr3.root()), "INV-8: halves mixed up: {cr3:?}");
    }

    /// INV-12 and INV-10: a load that keeps finds under its tag nothing that was freed, and nobody else's.
    fn check_kept(&self, cr3: Cr3) {
        let memory = self.world().memory.borrow();
        for (entry, stamp) in self.tlb.borrow().translations.iter().filter(|(held, _)| held.serves(cr3.pcid())) {
            assert!(!memory.is_freed(*stamp), "INV-12: cpu{} keeps a freed translation: {entry:x?}", self.id);
            let owner = memory.owner(*stamp);
            let is_own = owner == Owner::Kernel || owner == owner_of(cr3.root());
            assert!(is_own, "INV-8: cpu{} keeps another space's: {entry:x?}", self.id);
        }
    }
}

impl Hardware for Core {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    fn features(&self) -> Features {
        self.features
    }

    fn write_cr3(&self, cr3: Cr3) {
        if let Some(nmi) = &*self.nmi.borrow() {
            nmi(self.world());
        }
        self.note(Did::Cr3(cr3));
        self.check_tag(cr3);
        if let Owner::Space(space) = owner_of(cr3.root()) {
            assert_eq!(self.world().memory.borrow().roots[space], Fate::Live, "loaded the root of a dead space");
        }
        self.execute(Instruction::WriteCr3(cr3));
        if self.features.pcid && cr3.keeps() {
            self.check_kept(cr3);
        }
        self.cr3.set(cr3);
    }

    fn invlpg(&self, va: VirtAddr) {
        self.note(Did::Invlpg(va.0));
        self.execute(Instruction::Invlpg(va));
    }

    fn invpcid(&self, what: Invpcid) {
        assert!(self.features.invpcid, "no INVPCID here");
        if let Invpcid::Address(pcid, _) | Invpcid::Single(pcid) = what {
            assert!(self.features.pcid || pcid.0 == 0, "a general protection fault: tags are off");
        }
        if let Invpcid::Address(_, va) = what {
            assert!(is_canonical(va), "C-31: a general protection fault: {va:?} is not canonical");
        }
        self.note(Did::Invpcid(what));
        self.execute(Instruction::Invpcid(what));
    }

    fn toggle_pge(&self) {
        self.note(Did::TogglePge);
        self.execute(Instruction::TogglePge);
    }

    fn send_ipi(&self, to: CpuId) {
        self.note(Did::Ipi(to.0));
        assert_ne!(to.0, self.id, "an interrupt to itself");
        self.world().interrupt(to.0 as usize);
    }

    fn send_ipi_to_others(&self) {
        self.note(Did::IpiToOthers);
        let world = self.world();
        (0..world.cores.len()).filter(|&n| n != self.id as usize).for_each(|n| world.interrupt(n));
    }

    fn relax(&self) {
        self.world().while_waiting(self.id as usize);
    }

    fn glances(&self) -> u32 {
        self.glances.get()
    }

    fn patience_turns(&self) -> u32 {
        8
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

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        let index = token.0 as usize;
        assert_ne!(self.world().memory.borrow().roots[index], Fate::Freed, "asked for a dead space");
        let space = self.world().spaces.borrow()[index];
        f(space)
    }

    fn event(&self, event: Event) {
        self.note(Did::Event(event));
        if let Event::LastLazyReference(token) = event {
            self.world().unreferenced(token.0 as usize);
        }
    }

    fn now_cycles(&self) -> u64 {
        self.clock_cycles.set(self.clock_cycles.get() + 100);
        self.clock_cycles.get()
    }
}
