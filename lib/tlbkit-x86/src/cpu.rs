//! [`X86Cpu`]: the instructions of this crate and what only a kernel can supply, as one [`Hardware`].

use core::num::NonZeroU32;

use tlbkit::sync::AtomicU64;
use tlbkit::{
    Acknowledgement, AddressSpace, CpuId, Cr3, Directories, Event, Features, Hardware, HostExtent, HostFlush, Invlpgb,
    Invpcid, IrqsOff, KernelFlushes, Late, Missing, Pcid, PhysAddr, SpaceToken, VirtAddr,
};

use crate::apic::{Apic, Destination};
use crate::invalidate::Operands;
use crate::{interrupts, invalidate, registers};

/// What a kernel has to supply.
pub trait Kernel {
    /// As [`Hardware::Set`].
    type Set: AsRef<[AtomicU64]>;

    /// As [`Hardware::Token`].
    type Token: From<SpaceToken>;

    /// As [`Hardware::with_space_of`].
    fn with_space_of<R>(&self, token: Self::Token, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R;

    /// The APIC id of an online CPU.
    fn apic_id(&self, cpu: CpuId) -> u32;

    /// The shootdown interrupt is about to be sent to `to`. A kernel that has a driver for it sends it here, and
    /// returns [`Sent::ByKernel`]; one that counts interrupts counts it, and one that wants to see its tests fail
    /// loses it. The contract is that of [`Hardware::send_ipi`]. By default [`X86Cpu`] sends it through the APIC.
    #[inline(always)]
    fn send_ipi(&self, to: CpuId) -> Sent {
        let _ = to;
        Sent::NotYet
    }

    /// Sends one interrupt to every online CPU but this one, or says that [`X86Cpu`] has to.
    #[inline(always)]
    fn send_ipi_to_others(&self) -> Sent {
        Sent::NotYet
    }

    /// An instruction is about to invalidate something on this CPU. A kernel that counts counts it here, and one that
    /// wants to see its tests fail returns [`Invalidate::Never`], from the handler of the shootdown interrupt for
    /// instance. By default nothing is asked, and nothing is paid.
    #[inline(always)]
    fn invalidate(&self, what: Invalidation) -> Invalidate {
        let _ = what;
        Invalidate::Now
    }

    /// As [`Hardware::broadcast_pages`], for a kernel that uses INVLPGB: what
    /// [`Identity::broadcast_pages`](crate::Identity) says on every CPU. Where a CPU has no PCIDs it is not asked.
    #[inline(always)]
    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        None
    }

    /// As [`Hardware::event`].
    #[inline(always)]
    fn event(&self, event: Event) {
        let _ = event;
    }

    /// As [`Hardware::directories`].
    #[inline(always)]
    fn directories(&self) -> Directories {
        Directories::Shared
    }

    /// As [`Hardware::acknowledgement`].
    #[inline(always)]
    fn acknowledgement(&self) -> Acknowledgement {
        Acknowledgement::AfterFlush
    }

    /// As [`Hardware::root_here`].
    #[inline(always)]
    fn root_here(&self, space: &AddressSpace<Self::Set>) -> PhysAddr {
        space.root()
    }

    /// As [`Hardware::host_flush`].
    #[inline(always)]
    fn host_flush(&self) -> HostFlush {
        HostFlush::None
    }

    /// As [`Hardware::flush_by_host`].
    #[inline(always)]
    fn flush_by_host(&self, first: CpuId, cpus: u64, what: HostExtent) -> u64 {
        let _ = (first, what);
        cpus
    }

    /// As [`Hardware::kernel_flushes`].
    #[inline(always)]
    fn kernel_flushes(&self) -> KernelFlushes {
        KernelFlushes::AtOnce
    }

    /// As [`Hardware::glances`]. The default is a few microseconds of PAUSE, as long as an IPI and its
    /// answer take.
    #[inline(always)]
    fn glances(&self) -> u32 {
        32
    }

    /// As [`Hardware::patience_turns`]. The default is about a millisecond.
    #[inline]
    fn patience_turns(&self) -> u32 {
        1 << 14
    }

    /// As [`Hardware::late`]. By default the CPU is sent another IPI.
    fn late(&self, cpu: CpuId) -> Late {
        let _ = cpu;
        Late::AskAgain
    }

    /// As [`Hardware::patience_rounds`]. The default amounts to about a second with the default turns.
    #[inline]
    fn patience_rounds(&self) -> u32 {
        1 << 10
    }

    /// As [`Hardware::unanswered`].
    ///
    /// # Panics
    /// By default, with a message that names the missing CPUs.
    #[cold]
    fn unanswered(&self, missing: Missing<'_>) {
        panic!("{}{missing}", missing.complaint());
    }

    /// As [`Hardware::this_cpu`].
    #[inline(always)]
    fn this_cpu(&self) -> Option<CpuId> {
        None
    }

    /// As [`Hardware::wrong_cpu`].
    ///
    /// # Panics
    /// By default, with a message that names both CPUs.
    #[cold]
    fn wrong_cpu(&self, named: CpuId, here: CpuId) {
        panic!("called as CPU {}, on CPU {}: the task has migrated, or the number is wrong", named.0, here.0);
    }
}

/// Whether a kernel has sent an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It has, by a driver of its own.
    ByKernel,
    /// It has not: [`X86Cpu`] sends it through the APIC that it was made with.
    NotYet,
}

/// What an instruction is about to invalidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidation {
    /// A page, by INVLPG or INVPCID.
    Page(VirtAddr),
    /// All of a PCID, by a write of CR3 or INVPCID.
    Tag(Pcid),
    /// Everything, by INVPCID or CR4.PGE.
    Everything,
}

/// Whether [`X86Cpu`] executes such an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidate {
    /// It does.
    Now,
    /// It does not, so that stale entries stay: only for a test that is to fail. A CR3 is loaded all the same, and
    /// where there are no PCIDs that flushes.
    Never,
}

/// One CPU. It is created on the CPU that it stands for, and may be used on that CPU only. It is `Send` and `Sync`, so
/// that it can live in a static; using it on the right CPU is part of the contract of [`new`](Self::new).
pub struct X86Cpu<'k, K> {
    kernel: &'k K,
    features: Features,
    apic: Apic,
    flush_vector: u8,
    /// The bits that CR3 may have.
    cr3_mask: u64,
}

impl<'k, K: Kernel> X86Cpu<'k, K> {
    /// This CPU. `features` is what [`enable_pcids`](crate::enable_pcids) returned; the handler of `flush_vector` calls
    /// [`Cpu::answer`](tlbkit::Cpu::answer).
    ///
    /// # Safety
    /// For as long as the value is used: it is used in ring 0 of this CPU; this CPU has `features` and they are
    /// enabled; the APIC is enabled in the mode that `apic` says, and accepts `flush_vector`, unless the kernel sends
    /// all interrupts itself; every space that the protocol is given maps the kernel.
    #[must_use]
    pub unsafe fn new(kernel: &'k K, features: Features, apic: Apic, flush_vector: u8) -> Self {
        let cr3_mask = if features.pcid { u64::MAX } else { Cr3::flushing(Cr3(u64::MAX).root(), Pcid::KERNEL).0 };
        Self { kernel, features, apic, flush_vector, cr3_mask }
    }

    /// The kernel's part.
    #[must_use]
    pub const fn kernel(&self) -> &'k K {
        self.kernel
    }

    #[inline(always)]
    fn is_lost(&self, what: Invalidation) -> bool {
        self.kernel.invalidate(what) == Invalidate::Never
    }
}

impl<K: Kernel> Hardware for X86Cpu<'_, K> {
    type Set = K::Set;
    type Token = K::Token;

    #[inline(always)]
    fn features(&self) -> Features {
        self.features
    }

    #[inline(always)]
    fn write_cr3(&self, cr3: Cr3) {
        // With CR4.PCIDE clear, a PCID or the no-flush bit would fault. The protocol never sets them there, but this
        // function is safe, so it must be right for every other caller too.
        let mut cr3 = Cr3(cr3.0 & self.cr3_mask);
        if !cr3.keeps() && self.is_lost(Invalidation::Tag(cr3.pcid())) && self.features.pcid {
            cr3 = Cr3::keeping(cr3.root(), cr3.pcid());
        }
        // SAFETY: ring 0, and tables that map the kernel, by `new`; PCID and no-flush bit only if PCIDs are enabled.
        unsafe { registers::write_cr3(cr3) }
    }

    #[inline(always)]
    fn invlpg(&self, va: VirtAddr) {
        if !self.is_lost(Invalidation::Page(va)) {
            // SAFETY: ring 0, by `new`.
            unsafe { invalidate::invlpg(va) }
        }
    }

    #[inline]
    fn invpcid(&self, what: Invpcid) {
        let invalidation = match what {
            Invpcid::Address(_, va) => Invalidation::Page(va),
            Invpcid::Single(pcid) => Invalidation::Tag(pcid),
            Invpcid::All | Invpcid::AllAndGlobals => Invalidation::Everything,
        };
        if self.is_lost(invalidation) {
            return;
        }
        // SAFETY: ring 0, by `new`; the protocol calls it only if the features include INVPCID.
        unsafe { invalidate::invpcid(what) }
    }

    fn toggle_pge(&self) {
        if !self.is_lost(Invalidation::Everything) {
            // SAFETY: ring 0, by `new`; the protocol calls it with interrupts off.
            unsafe { registers::toggle_pge() }
        }
    }

    #[inline(always)]
    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        // Without PCIDs it would fault for each that is named, and nothing else can be named.
        self.kernel.broadcast_pages().filter(|_| self.features.pcid)
    }

    fn invlpgb(&self, what: Invlpgb) {
        // SAFETY: ring 0, by `new`; the protocol calls it only if the kernel says that all CPUs have the instruction,
        // and for no more pages than it takes.
        unsafe { Operands::of(what).execute() }
    }

    fn tlbsync(&self) {
        // SAFETY: as above.
        unsafe { invalidate::tlbsync() }
    }

    fn send_ipi(&self, to: CpuId) {
        if self.kernel.send_ipi(to) == Sent::NotYet {
            // SAFETY: ring 0 and an enabled APIC, by `new`.
            unsafe { self.apic.send(Destination::One(self.kernel.apic_id(to)), self.flush_vector) }
        }
    }

    fn send_ipi_to_others(&self) {
        if self.kernel.send_ipi_to_others() == Sent::NotYet {
            // SAFETY: as above.
            unsafe { self.apic.send(Destination::AllButSelf, self.flush_vector) }
        }
    }

    #[inline(always)]
    fn directories(&self) -> Directories {
        self.kernel.directories()
    }

    #[inline(always)]
    fn acknowledgement(&self) -> Acknowledgement {
        self.kernel.acknowledgement()
    }

    #[inline(always)]
    fn root_here(&self, space: &AddressSpace<K::Set>) -> PhysAddr {
        self.kernel.root_here(space)
    }

    #[inline(always)]
    fn host_flush(&self) -> HostFlush {
        self.kernel.host_flush()
    }

    #[inline(always)]
    fn flush_by_host(&self, first: CpuId, cpus: u64, what: HostExtent) -> u64 {
        self.kernel.flush_by_host(first, cpus, what)
    }

    #[inline(always)]
    fn kernel_flushes(&self) -> KernelFlushes {
        self.kernel.kernel_flushes()
    }

    #[inline(always)]
    fn relax(&self) {
        core::hint::spin_loop();
    }

    #[inline(always)]
    fn glances(&self) -> u32 {
        self.kernel.glances()
    }

    #[inline]
    fn patience_turns(&self) -> u32 {
        self.kernel.patience_turns()
    }

    fn late(&self, cpu: CpuId) -> Late {
        self.kernel.late(cpu)
    }

    #[inline]
    fn patience_rounds(&self) -> u32 {
        self.kernel.patience_rounds()
    }

    #[cold]
    fn unanswered(&self, missing: Missing<'_>) {
        self.kernel.unanswered(missing);
    }

    #[inline(always)]
    fn this_cpu(&self) -> Option<CpuId> {
        self.kernel.this_cpu()
    }

    #[cold]
    fn wrong_cpu(&self, named: CpuId, here: CpuId) {
        self.kernel.wrong_cpu(named, here);
    }

    fn cr3(&self) -> Option<Cr3> {
        // SAFETY: ring 0, by `new`.
        Some(unsafe { registers::read_cr3() })
    }

    #[inline(always)]
    fn irqs_enabled(&self) -> bool {
        interrupts::are_enabled()
    }

    #[inline(always)]
    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        // SAFETY: ring 0, by `new`.
        let before = unsafe { interrupts::save_and_disable() };
        let result = f(&IrqsOff::assume());
        // SAFETY: ring 0, by `new`; if interrupts were enabled, the handlers are in place.
        unsafe { interrupts::restore(before) }
        result
    }

    #[inline(always)]
    fn with_space_of<R>(&self, token: K::Token, f: impl FnOnce(&AddressSpace<K::Set>) -> R) -> R {
        self.kernel.with_space_of(token, f)
    }

    #[inline(always)]
    fn event(&self, event: Event) {
        self.kernel.event(event);
    }

    #[inline(always)]
    fn now_cycles(&self) -> u64 {
        registers::now_cycles()
    }
}
