//! One CPU as its guest sees it: the ring that it believes to be in, its control registers, its TLB.

use tlbkit::PhysAddr;
use tlbkit_x86::{CR4_PCIDE, CR4_PGE};

use super::shadow::Shadow;
use super::tlb::{Tag, Tlb};

const ROOT: u64 = 0x000f_ffff_ffff_f000;
const TAG: u64 = 0xfff;

/// The ring that the guest believes to be in; it is always in 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ring {
    /// Its kernel, in "ring 0".
    Kernel,
    /// Its programs.
    Program,
}

/// A sequence of numbers from a seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::user::mix(self.0)
    }
}

/// One CPU.
pub(super) struct Core {
    pub(super) ring: Ring,
    pub(super) cr2: u64,
    /// Root and tag; never the no-flush bit.
    pub(super) cr3: u64,
    pub(super) cr4: u64,
    pub(super) tlb: Tlb,
    pub(super) shadow: Shadow,
    pub(super) random: Random,
}

impl Core {
    pub(super) const fn new() -> Self {
        Self {
            ring: Ring::Kernel,
            cr2: 0,
            cr3: 0,
            cr4: 0,
            tlb: Tlb::new(),
            shadow: Shadow::new(),
            random: Random::new(0),
        }
    }

    /// The loaded top-level table.
    pub(super) const fn root(&self) -> PhysAddr {
        PhysAddr(self.cr3 & ROOT)
    }

    /// The loaded tag.
    pub(super) const fn tag(&self) -> Tag {
        if self.has_tags() { (self.cr3 & TAG) as Tag } else { 0 }
    }

    pub(super) const fn has_tags(&self) -> bool {
        self.cr4 & CR4_PCIDE != 0
    }

    pub(super) const fn has_globals(&self) -> bool {
        self.cr4 & CR4_PGE != 0
    }
}
