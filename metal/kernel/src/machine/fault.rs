//! A machine that breaks one rule, chosen on the command line, to show that the value checks see it.

use core::sync::atomic::{AtomicU64, Ordering};

use tlbkit::{AddressSpace, CpuId, Cr3, Features, Hardware, Invpcid, IrqsOff, PhysAddr, SpaceToken, VirtAddr};
use tlbkit_pmap::Memory;

use super::tlb;
use crate::memory::Ram;
use crate::process;

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// INVLPG and INVPCID do nothing.
    NoInvalidation,
    /// Nobody is interrupted; requests count as answered.
    NoInterrupt,
    /// A frame gets a new owner as soon as it is unhooked, before the flush.
    FreeBeforeFlush,
}

const FAULTS: &[(&str, Fault)] = &[
    ("none", Fault::None),
    ("no-invalidation", Fault::NoInvalidation),
    ("no-interrupt", Fault::NoInterrupt),
    ("free-before-flush", Fault::FreeBeforeFlush),
];

impl Fault {
    /// The names, for a line that says what there is.
    pub(crate) const NAMES: &str = "none, no-invalidation, no-interrupt or free-before-flush";

    /// The fault of that name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        FAULTS.iter().find(|(known, _)| *known == name).map(|&(_, fault)| fault)
    }
}

static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// Breaks it from now on.
pub(crate) fn choose(fault: Fault) {
    // Relaxed: before the other CPUs start.
    CHOSEN.store(fault as u64, Ordering::Relaxed);
}

fn is(fault: Fault) -> bool {
    // Relaxed: as above.
    CHOSEN.load(Ordering::Relaxed) == fault as u64
}

/// True if INVLPG and INVPCID must have no effect.
pub(super) fn loses_invalidation() -> bool {
    is(Fault::NoInvalidation)
}

/// True if no interrupt must arrive.
pub(super) fn loses_interrupt() -> bool {
    is(Fault::NoInterrupt)
}

/// True if frames are given away before the flush.
pub(crate) fn frees_early() -> bool {
    is(Fault::FreeBeforeFlush)
}

/// What the new owner of a frame does to it.
const NEW_OWNERS_WORD: u64 = 0x0bad_f4ee_0bad_f4ee;
/// As long as an owner may take before the flush that comes too late.
const OWNED_SPINS: u32 = 20_000;

/// The frame is somebody else's: who stores to it through a translation that should be gone breaks him.
pub(crate) fn new_owner_of(frame: PhysAddr) {
    Ram.store(frame, NEW_OWNERS_WORD);
    for _ in 0..OWNED_SPINS {
        core::hint::spin_loop();
    }
    let found = Ram.load(frame);
    if found != NEW_OWNERS_WORD {
        crate::report::wrong_value(frame.0, found, NEW_OWNERS_WORD);
    }
}

/// Answers for `to` without executing anything there: what a kernel does that believes an interrupt was enough.
pub(super) fn pretend_answer(to: CpuId) {
    tlb().cpu(to, &Nothing).answer(&IrqsOff::assume());
}

/// A CPU whose instructions do nothing.
struct Nothing;

impl Hardware for Nothing {
    fn features(&self) -> Features {
        Features::default()
    }

    fn write_cr3(&self, _cr3: Cr3) {}

    fn invlpg(&self, _va: VirtAddr) {}

    fn invpcid(&self, _what: Invpcid) {}

    fn toggle_pge(&self) {}

    fn send_ipi(&self, _to: CpuId) {}

    fn send_ipi_to_others(&self) {}

    fn relax(&self) {}

    fn irqs_enabled(&self) -> bool {
        true
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        f(&IrqsOff::assume())
    }

    fn space(&self, token: SpaceToken) -> &AddressSpace<'_> {
        process::by_token(token).space()
    }

    fn now_cycles(&self) -> u64 {
        0
    }
}
