//! Reaching the page tables of a space that is not loaded: through a window, by loading it for a while, or by a direct
//! map.
//!
//! The edits themselves always go through [`Memory`](crate::Memory). What the ways cost is done here: the window's
//! invalidations and the switches.

use crate::gather::Unhook;
use crate::lock::{SpinGuard, SpinLock};
use crate::memory::Memory;
use crate::pmap::Pmap;
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{AddressSpace, Cpu, Foreign, Hardware, Reason, Scope};

/// Where the alternate recursive mapping of a 512 GiB slot of the kernel half lies, and its base pages.
const WINDOW: (u64, u64) = (0xffff_ff00_0000_0000, 1 << 27);

/// The machine's one alternate window. Moving it makes what every CPU cached of it wrong.
pub(crate) struct Window {
    lock: SpinLock,
    target: AtomicU64,
}

/// What the CPU runs while it edits foreign tables, and goes back to.
pub(crate) enum Home<'s, S> {
    /// No program's space: a thread that has left its own for good.
    Nowhere,
    /// This one.
    Space(&'s AddressSpace<S>),
}

/// Foreign tables in reach until [`leave`](Self::leave).
#[must_use]
pub(crate) struct Reach<'w, 's, S> {
    home: Option<Home<'s, S>>,
    window: Option<(&'w Window, SpinGuard<'w>)>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { lock: SpinLock::new(), target: AtomicU64::new(0) }
    }

    /// Brings the tables of `pmap` into reach.
    pub(crate) fn reach<'w, 's, S, H: Hardware<Set = S>>(
        &'w self,
        cpu: &Cpu<'_, '_, H>,
        pmap: &Pmap<S>,
        home: Home<'s, S>,
    ) -> Reach<'w, 's, S> {
        match cpu.tlb().policy().history.foreign() {
            Foreign::DirectMap => Reach { home: None, window: None },
            Foreign::TemporarySwitch => {
                // Free if the space is still loaded lazily.
                cpu.hardware().with_irqs_off(|irqs| cpu.switch_to(pmap.space(), irqs));
                Reach { home: Some(home), window: None }
            }
            Foreign::Window => {
                let guard = self.lock.lock(cpu.hardware());
                // Relaxed: the window's lock orders it. It was empty, so no CPU caches anything of it.
                self.target.store(pmap.space().root().0, Ordering::Relaxed);
                Reach { home: None, window: Some((self, guard)) }
            }
        }
    }

    /// Takes the foreign tables out of the window, after each use as NetBSD did about 5.0: every CPU drops
    /// what it cached.
    fn empty<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) {
        // Relaxed: the window's lock orders it.
        self.target.store(0, Ordering::Relaxed);
        let mut unhook = Unhook::<H, _, 0>::of_kernel(cpu, mem);
        unhook.range(WINDOW.0, WINDOW.1, Scope::Local, Reason::ForeignTables);
        unhook.finish();
    }
}

impl<S> Reach<'_, '_, S> {
    /// Goes back to what the CPU ran before.
    pub(crate) fn leave<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) {
        if let Some((window, _guard)) = self.window {
            window.empty(cpu, mem);
        }
        cpu.hardware().with_irqs_off(|irqs| match self.home {
            None => {}
            Some(Home::Nowhere) => cpu.enter_lazy(irqs),
            Some(Home::Space(space)) => cpu.switch_to(space, irqs),
        });
    }
}
