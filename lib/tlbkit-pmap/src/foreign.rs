//! Access to the page tables of a space that is not loaded: through a window, by loading the space for a while, or
//! through the direct map.
//!
//! The entries themselves are always accessed through [`Memory`](crate::Memory). This file performs what each way costs
//! in TLB operations: the invalidations of the window, or the two switches.

use crate::gather::MmuGather;
use crate::lock::{SpinGuard, SpinLock};
use crate::memory::Memory;
use crate::pmap::Pmap;
use tlbkit::{AddressSpace, Cpu, Foreign, Hardware, Reason, Scope};

/// The window: the first address of the alternate recursive mapping, which occupies one top-level entry of the kernel
/// half (512 GiB), and its number of base pages.
const WINDOW: (u64, u64) = (0xffff_ff00_0000_0000, 1 << 27);

/// The only window of the machine. Moving it makes the translations of it stale on every CPU.
pub(crate) struct Window {
    lock: SpinLock,
}

/// What the CPU ran before it accessed foreign tables, and returns to.
pub(crate) enum Home<'s, S> {
    /// No user space: the thread has left its own for good.
    Nowhere,
    /// This space.
    Space(&'s AddressSpace<S>),
}

/// Access to foreign tables, until [`leave`](Self::leave).
#[must_use]
pub(crate) struct Reach<'w, 's, S> {
    home: Option<Home<'s, S>>,
    window: Option<SpinGuard<'w>>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { lock: SpinLock::new() }
    }

    /// Makes the tables of `pmap` accessible.
    pub(crate) fn reach<'w, 's, S, H: Hardware<Set = S>>(
        &'w self,
        cpu: &Cpu<'_, '_, H>,
        pmap: &Pmap<S>,
        home: Home<'s, S>,
    ) -> Reach<'w, 's, S> {
        match cpu.tlb().policy().history.foreign() {
            Foreign::DirectMap => Reach { home: None, window: None },
            Foreign::TemporarySwitch => {
                // Costs nothing if the space is still loaded lazily.
                cpu.hardware().with_irqs_off(|irqs| cpu.switch_to(pmap.space(), irqs));
                Reach { home: Some(home), window: None }
            }
            Foreign::Window => {
                // It was emptied after its last use, so no CPU has translations of it.
                Reach { home: None, window: Some(self.lock.lock(cpu.hardware())) }
            }
        }
    }
}

/// Flushes the window on every CPU, after each use, as NetBSD did about 5.0.
fn flush_window<H: Hardware>(cpu: &Cpu<'_, '_, H>, mem: &impl Memory) {
    let mut gather = MmuGather::<H, _, 0>::of_kernel(cpu, mem);
    gather.range(WINDOW.0, WINDOW.1, Scope::NonGlobal, Reason::ForeignTables);
    gather.finish();
}

impl<S> Reach<'_, '_, S> {
    /// Returns to what the CPU ran before.
    pub(crate) fn leave<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) {
        if self.window.is_some() {
            flush_window(cpu, mem);
        }
        drop(self.window);
        cpu.hardware().with_irqs_off(|irqs| match self.home {
            None => {}
            Some(Home::Nowhere) => cpu.enter_lazy(irqs),
            Some(Home::Space(space)) => cpu.switch_to(space, irqs),
        });
    }
}
