//! Do-nothing hardware: takes each value from the compiler, so that it must be computed, and does nothing with it.

use std::hint::black_box;

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, CpuId, Cr3, Features, Hardware, Invpcid, IrqsOff, PhysAddr, Policy, SpaceToken, Tlb, VirtAddr,
};

use crate::MODERN;

/// Every CPU of a machine on which instructions are counted. It overrides no answer of [`Hardware`] that a kernel may
/// leave to the library, so it gives the library's own.
///
/// It is generic so that the benchmark compiles it, together with all that calls it, as it would in its own sources:
/// compiled here, two of the counted paths were inlined in another way.
pub struct Nothing<S: 'static> {
    /// The protocol's part of the machine.
    pub tlb: &'static Tlb<'static>,
    /// By token.
    pub spaces: &'static [AddressSpace<S>],
}

static NO_MATRIX: [AtomicU64; Tlb::matrix_words(0)] = [const { AtomicU64::new(0) }; Tlb::matrix_words(0)];
static NO_CPUS: Tlb<'static> = Tlb::new(&[], &NO_MATRIX, PhysAddr(0), Policy::DEFAULT);

/// Has no CPU, as only the library's own answers are wanted of it.
pub(crate) static ALONE: Nothing<[AtomicU64; 0]> = Nothing { tlb: &NO_CPUS, spaces: &[] };

/// A CPU that leaves all to the library that a kernel may leave to it.
#[must_use]
pub fn lone_cpu() -> &'static impl Hardware {
    &ALONE
}

impl<S: AsRef<[AtomicU64]>> Nothing<S> {
    /// `cpu` takes its interrupt. The name of this function toggles the count of a benchmark: it is left out of a path
    /// that is counted, and counted in one that is not.
    #[inline(never)]
    pub fn finish_elsewhere(&self, cpu: CpuId) {
        self.tlb.cpu(cpu, self).answer(&IrqsOff::assume());
    }
}

impl<S: AsRef<[AtomicU64]>> Hardware for Nothing<S> {
    type Set = S;
    type Token = SpaceToken;

    #[inline(always)]
    fn features(&self) -> Features {
        MODERN
    }
    #[inline(always)]
    fn write_cr3(&self, cr3: Cr3) {
        black_box(cr3.0);
    }
    #[inline(always)]
    fn invlpg(&self, va: VirtAddr) {
        black_box(va.0);
    }
    #[inline(always)]
    fn invpcid(&self, what: Invpcid) {
        black_box(what);
    }
    fn toggle_pge(&self) {}
    /// Other CPUs finish at once: the responder's work is not part of what is counted, only its cleared bit is.
    #[inline(always)]
    fn send_ipi(&self, to: CpuId) {
        black_box(to.0);
        self.finish_elsewhere(to);
    }
    #[inline(always)]
    fn send_ipi_to_others(&self) {
        (1..8).for_each(|cpu| self.finish_elsewhere(CpuId(cpu)));
    }
    fn relax(&self) {}
    #[inline(always)]
    fn irqs_enabled(&self) -> bool {
        true
    }
    #[inline(always)]
    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        f(&IrqsOff::assume())
    }
    #[inline(always)]
    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(&self.spaces[token.0 as usize])
    }
    fn now_cycles(&self) -> u64 {
        0
    }
}
