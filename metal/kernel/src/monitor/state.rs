//! One CPU as its guest sees it: the ring that it believes to be in, its control registers, its TLB.

use core::cell::UnsafeCell;

use tlbkit::{Cr3, Pcid, PhysAddr};
use tlbkit_arch::{CurrentTag, SplitMix64};
use tlbkit_x86::{CR4_PCIDE, CR4_PGE};

use super::shadow::Shadow;
use super::tlb::Tlb;
use crate::arch::cpu;
use crate::command_line::Monitor;
use crate::layout::MAX_MONITORED_CPUS;

/// The flags with which ring 3 may use ports, CLI and STI.
pub(super) const IO_PRIVILEGE: u64 = 3 << 12;
const STACK_BYTES: usize = 16 << 10;

/// The ring that the guest believes to be in; it is always in 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ring {
    /// Its kernel, in "ring 0".
    Kernel,
    /// Its programs.
    Program,
}

/// One CPU, as its guest sees it.
pub(super) struct Core {
    pub(super) monitor: Monitor,
    pub(super) ring: Ring,
    pub(super) cr2: u64,
    /// Root and PCID; never the no-flush bit.
    pub(super) cr3: Cr3,
    pub(super) cr4: u64,
    pub(super) tlb: Tlb,
    pub(super) shadow: Shadow,
    pub(super) random: SplitMix64,
}

impl Core {
    pub(super) const fn new() -> Self {
        Self {
            monitor: Monitor::USUAL,
            ring: Ring::Kernel,
            cr2: 0,
            cr3: Cr3(0),
            cr4: 0,
            tlb: Tlb::new(),
            shadow: Shadow::new(),
            random: SplitMix64::new(0),
        }
    }

    /// The loaded top-level table.
    pub(super) const fn root(&self) -> PhysAddr {
        self.cr3.root()
    }

    /// The current PCID.
    pub(super) const fn tag(&self) -> Pcid {
        self.current_tag().pcid()
    }

    pub(super) const fn current_tag(&self) -> CurrentTag {
        if self.has_tags() { CurrentTag::Loaded(self.cr3.pcid()) } else { CurrentTag::Off }
    }

    pub(super) const fn has_tags(&self) -> bool {
        self.cr4 & CR4_PCIDE != 0
    }

    pub(super) const fn has_globals(&self) -> bool {
        self.cr4 & CR4_PGE != 0
    }
}

#[repr(C, align(64))]
struct PerCpu {
    core: UnsafeCell<Core>,
    stack: UnsafeCell<[u8; STACK_BYTES]>,
}

// SAFETY: each CPU uses its own alone, in ring 0, where interrupts are off.
unsafe impl Sync for PerCpu {}

static CPUS: [PerCpu; MAX_MONITORED_CPUS] =
    [const { PerCpu { core: UnsafeCell::new(Core::new()), stack: UnsafeCell::new([0; STACK_BYTES]) } };
        MAX_MONITORED_CPUS];

/// This CPU's state.
///
/// # Safety
/// Ring 0, in the handler of a trap out of ring 3, once for each; or before the first of them.
pub(super) unsafe fn core_of_this_cpu() -> &'static mut Core {
    // SAFETY: by the caller's contract.
    unsafe { &mut *CPUS[cpu::index() as usize].core.get() }
}

/// The top of the stack on which this CPU handles traps out of ring 3.
pub(super) fn stack_of_this_cpu() -> u64 {
    CPUS[cpu::index() as usize].stack.get() as u64 + STACK_BYTES as u64
}
