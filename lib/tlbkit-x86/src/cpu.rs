//! [`X86Cpu`]: the instructions as one [`Hardware`], with what only a kernel can supply.

use tlbkit::{AddressSpace, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, Pcid, SpaceToken, VirtAddr};

use crate::apic::{Apic, Destination};
use crate::{interrupts, invalidate, registers};

/// What a kernel supplies.
pub trait Kernel {
    /// As [`Hardware::space`].
    fn space(&self, token: SpaceToken) -> &AddressSpace<'_>;

    /// The APIC id of a CPU that is up.
    fn apic_id(&self, cpu: CpuId) -> u32;

    /// As [`Hardware::event`].
    #[inline(always)]
    fn event(&self, event: Event) {
        let _ = event;
    }
}

/// One CPU. Made on the CPU that it stands for, and used there alone.
pub struct X86Cpu<'k, K> {
    kernel: &'k K,
    features: Features,
    apic: Apic,
    flush_vector: u8,
}

impl<'k, K: Kernel> X86Cpu<'k, K> {
    /// This CPU. `features` is what [`enable_tags`](crate::enable_tags) returned; `flush_vector` ends in
    /// [`Cpu::answer`](tlbkit::Cpu::answer).
    ///
    /// # Safety
    /// For as long as it is used: ring 0, on this CPU; `features` are this CPU's and switched on; the APIC is enabled
    /// in the mode that `apic` says, and takes `flush_vector`; spaces that the protocol is given map the kernel.
    #[must_use]
    pub unsafe fn new(kernel: &'k K, features: Features, apic: Apic, flush_vector: u8) -> Self {
        Self { kernel, features, apic, flush_vector }
    }

    /// What the kernel supplied.
    #[must_use]
    pub const fn kernel(&self) -> &'k K {
        self.kernel
    }
}

impl<K: Kernel> Hardware for X86Cpu<'_, K> {
    #[inline(always)]
    fn features(&self) -> Features {
        self.features
    }

    #[inline(always)]
    fn write_cr3(&self, cr3: Cr3) {
        // Without tags a tag or the no-flush bit would fault. The protocol leaves them out by itself; this is for
        // whoever else calls this function, which is safe to call.
        let cr3 = if self.features.pcid { cr3 } else { Cr3::flushing(cr3.root(), Pcid::KERNEL) };
        // SAFETY: ring 0 and tables that map the kernel, by `new`; tag and no-flush bit only if tags are on.
        unsafe { registers::write_cr3(cr3) }
    }

    #[inline(always)]
    fn invlpg(&self, va: VirtAddr) {
        // SAFETY: ring 0, by `new`.
        unsafe { invalidate::invlpg(va) }
    }

    #[inline]
    fn invpcid(&self, what: Invpcid) {
        // SAFETY: ring 0 by `new`; called only if the features have it.
        unsafe { invalidate::invpcid(what) }
    }

    fn toggle_pge(&self) {
        // SAFETY: ring 0 by `new`; called with interrupts off.
        unsafe { registers::toggle_pge() }
    }

    fn send_ipi(&self, to: CpuId) {
        // SAFETY: ring 0 and an enabled APIC, by `new`.
        unsafe { self.apic.send(Destination::One(self.kernel.apic_id(to)), self.flush_vector) }
    }

    fn send_ipi_to_others(&self) {
        // SAFETY: as above.
        unsafe { self.apic.send(Destination::Others, self.flush_vector) }
    }

    #[inline(always)]
    fn relax(&self) {
        core::hint::spin_loop();
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
        // SAFETY: ring 0, by `new`; if they were enabled, handlers are in place.
        unsafe { interrupts::restore(before) }
        result
    }

    #[inline(always)]
    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        self.kernel.space(token)
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
