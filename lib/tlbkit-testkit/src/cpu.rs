//! One CPU in software: what it holds, what it has done, and what the machine of a test adds to it.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, CpuId, Cr3, Directories, Event, Features, Hardware, HostExtent, HostFlush, Invlpgb, Invpcid,
    KernelFlushes, Late, Pcid, PhysAddr, SpaceToken, Tlb,
};
use tlbkit_arch::store::Store;
use tlbkit_arch::{CurrentTag, Instruction};

use crate::apics::Apics;
use crate::nothing::ALONE;

/// What a CPU has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// Wrote this value to CR3.
    Cr3(Cr3),
    /// INVLPG of this address.
    Invlpg(u64),
    /// INVPCID.
    Invpcid(Invpcid),
    /// Cleared and set CR4.PGE.
    TogglePge,
    /// INVLPGB.
    Invlpgb(Invlpgb),
    /// TLBSYNC.
    Tlbsync,
    /// Sent an IPI to this CPU.
    Ipi(u32),
    /// Sent an IPI to all others.
    IpiToOthers,
    /// Asked the host to flush these CPUs, each a bit, of the first 64.
    ByHost(u64, HostExtent),
    /// The protocol reported this.
    Event(Event),
}

/// What a test adds to its CPUs. A reference to the test's machine implements it, and each CPU keeps a copy of that.
pub trait Machine: Copy {
    /// [`Hardware::Set`] of its CPUs.
    type Set: AsRef<[AtomicU64]>;
    /// [`Hardware::Token`] of its CPUs.
    type Token: From<SpaceToken>;
    /// What the test wants to know of a translation that a CPU holds.
    type Entry;
    /// What it wants to know of a cached path.
    type Table;
    /// What it keeps for each CPU.
    type Kept: Default;

    /// The protocol's part of the machine.
    fn tlb(&self) -> &Tlb<'_>;

    /// The interrupts between its CPUs.
    fn apics(&self) -> &Apics;

    /// [`Hardware::with_space_of`] of its CPUs.
    fn with_space_of<R>(self, token: Self::Token, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R;

    /// [`Hardware::root_here`] of `cpu`.
    fn root_here(self, _cpu: &TestCpu<Self>, space: &AddressSpace<Self::Set>) -> PhysAddr {
        space.root()
    }

    /// `cpu` is about to execute an instruction.
    fn before(self, _cpu: &TestCpu<Self>, _instruction: Instruction) {}

    /// It has executed that instruction.
    fn after(self, _cpu: &TestCpu<Self>, _instruction: Instruction) {}

    /// The TLBSYNC of `cpu` completes its INVLPGB `instruction`. By default it reaches no TLB: a test that uses INVLPGB
    /// drops what that names.
    fn broadcast(self, _cpu: &TestCpu<Self>, _instruction: Instruction) {}

    /// A CPU interrupts `to`. By default the interrupt is pending until `to` [takes](TestCpu::take_interrupt) it.
    fn interrupt(self, to: CpuId) {
        self.apics().send(to);
    }

    /// `cpu` handles an interrupt.
    fn handle(self, cpu: &TestCpu<Self>) {
        cpu.with_irqs_off(|irqs| self.tlb().cpu(cpu.id, cpu).answer(irqs));
    }

    /// `cpu` waits. By default it is a thread, and lets the others run.
    fn relax(self, _cpu: &TestCpu<Self>) {
        self.apics().yield_now();
    }

    /// The protocol reports something on `cpu`.
    fn event(self, _cpu: &TestCpu<Self>, _event: Event) {}
}

/// A CPU and its TLB. As long as a test changes nothing, waits are as patient as the library's own.
pub struct TestCpu<M: Machine> {
    /// The machine that it belongs to.
    pub machine: M,
    /// Its number.
    pub id: CpuId,
    /// What it can do.
    pub features: Features,
    /// What its TLB holds.
    pub tlb: RefCell<Store<M::Entry, M::Table>>,
    /// What it has loaded.
    pub cr3: Cell<Cr3>,
    /// True while interrupts are on.
    pub irqs: Cell<bool>,
    /// An offline CPU takes no interrupt.
    pub is_online: Cell<bool>,
    /// How many interrupts it has taken.
    pub interrupts: Cell<u32>,
    /// What it has done, until a test takes it out.
    pub log: RefCell<Vec<Did>>,
    /// Goes on by 100 whenever it is read.
    pub clock_cycles: Cell<u64>,
    /// [`Hardware::broadcast_pages`] of this CPU.
    pub broadcast_pages: Cell<Option<NonZeroU32>>,
    /// Its INVLPGBs since its last TLBSYNC.
    pub(crate) unsynced: RefCell<Vec<Invlpgb>>,
    /// [`Hardware::directories`] of this CPU: its own, though its tables are shared until a test says otherwise.
    pub directories: Cell<Directories>,
    /// [`Hardware::kernel_flushes`] of this CPU.
    pub kernel_flushes: Cell<KernelFlushes>,
    /// [`Hardware::host_flush`] of this CPU.
    pub host_flush: Cell<HostFlush>,
    /// The CPUs that the host flushes when it is asked, each a bit; it says so, and a test sees to it.
    pub left_to_host: Cell<u64>,
    /// [`Hardware::glances`] of this CPU.
    pub glances: Cell<u32>,
    /// [`Hardware::patience_turns`] of this CPU.
    pub patience_turns: Cell<u32>,
    /// [`Hardware::patience_rounds`] of this CPU.
    pub patience_rounds: Cell<u32>,
    /// What is done about late CPUs.
    pub about_late: Cell<Late>,
    /// Which CPUs were late, in order.
    pub was_late: RefCell<Vec<u32>>,
    /// Where the code runs that calls as this CPU, if the kernel can tell.
    pub here: Cell<Option<CpuId>>,
    /// Where the task is moved to just before interrupts are off the next time, or just before the next INVLPGB.
    pub moves_to: Cell<Option<CpuId>>,
    /// What the machine keeps for it.
    pub kept: M::Kept,
}

impl<M: Machine> TestCpu<M> {
    /// CPU `id`, online, with interrupts on, an empty TLB and the kernel's PCID loaded.
    #[must_use]
    pub fn new(machine: M, id: CpuId, features: Features) -> Self {
        Self {
            machine,
            id,
            features,
            tlb: RefCell::default(),
            cr3: Cell::new(Cr3::flushing(PhysAddr(0), Pcid::KERNEL)),
            irqs: Cell::new(true),
            is_online: Cell::new(true),
            interrupts: Cell::new(0),
            log: RefCell::default(),
            clock_cycles: Cell::new(0),
            broadcast_pages: Cell::new(ALONE.broadcast_pages()),
            unsynced: RefCell::default(),
            directories: Cell::new(Directories::OfEachCpu),
            kernel_flushes: Cell::new(ALONE.kernel_flushes()),
            host_flush: Cell::new(ALONE.host_flush()),
            left_to_host: Cell::new(0),
            glances: Cell::new(ALONE.glances()),
            patience_turns: Cell::new(ALONE.patience_turns()),
            patience_rounds: Cell::new(ALONE.patience_rounds()),
            about_late: Cell::new(ALONE.late(id)),
            was_late: RefCell::default(),
            here: Cell::new(ALONE.this_cpu()),
            moves_to: Cell::new(None),
            kept: M::Kept::default(),
        }
    }

    /// The tag under which it translates.
    pub fn current_tag(&self) -> CurrentTag {
        if self.features.pcid { CurrentTag::Loaded(self.cr3.get().pcid()) } else { CurrentTag::Off }
    }

    /// Takes its interrupt, if one is pending and nothing keeps the CPU from it.
    pub fn take_interrupt(&self) {
        if self.is_online.get() && self.irqs.get() && self.machine.apics().take(self.id) {
            self.interrupts.set(self.interrupts.get() + 1);
            self.machine.handle(self);
        }
    }

    pub(crate) fn execute(&self, did: Did, instruction: Instruction) {
        self.machine.before(self, instruction);
        self.log.borrow_mut().push(did);
        self.tlb.borrow_mut().execute(instruction, self.current_tag());
        if let Instruction::WriteCr3(cr3) = instruction {
            self.cr3.set(cr3);
        }
        self.machine.after(self, instruction);
    }
}

impl<M: Machine> Drop for TestCpu<M> {
    fn drop(&mut self) {
        // Relaxed: it only ends the test.
        self.machine.apics().has_failed.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}
