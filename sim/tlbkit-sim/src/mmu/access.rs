//! What is asked of the translation hardware, and what it answers.

use thiserror::Error;
use tlbkit::{PhysAddr, VirtAddr};

use super::entry::{DIRTY, EXECUTE, GRANT_ALL, PRESENT, USER, WRITE};

/// Physical memory as the walker sees it.
pub trait Tables {
    /// The 8-byte entry at `pa`.
    fn read(&self, pa: PhysAddr) -> u64;
    /// Sets A and D bits (5 and 6) in the entry at `pa`, atomically with respect to other CPUs.
    fn set_accessed_dirty(&self, pa: PhysAddr, bits: u64);
}

/// What an instruction does at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Loads.
    Read,
    /// Stores.
    Write,
    /// Fetches. It goes through the same arrays: no separate instruction TLB is modelled.
    Execute,
}

/// The privilege of the access. Supervisor accesses honour read-only pages (CR0.WP is set); SMAP and SMEP are off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// CPL 3.
    User,
    /// CPL 0.
    Kernel,
}

/// Whether the processor can do other work meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overlap {
    /// Neighbouring accesses do not wait for this one: costs are throughput.
    Independent,
    /// The next access needs this one's result: costs are latency.
    Dependent,
}

/// Which structure answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A first-level array.
    L1,
    /// A second-level array.
    Stlb,
    /// The page tables.
    Walk,
}

/// What an access cost beyond a first-level hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Which structure answered.
    pub source: Source,
    /// Memory references of the walk, nested ones included.
    pub references: u16,
    /// Whole cycles; the fraction left over is carried to the next access.
    pub cycles: u32,
}

/// A translated access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The physical address of the byte.
    pub pa: PhysAddr,
    /// What finding it cost.
    pub cost: Cost,
}

/// Why an access was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// An entry on the way has P clear.
    NotPresent,
    /// The page is there but does not allow this.
    Protection,
    /// The address is not canonical: a general-protection fault, no walk.
    NonCanonical,
}

/// A refused access. The processor has dropped what it had cached for the address under the loaded tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{access:?} at {va:?} in {mode:?} mode: {kind:?}")]
pub struct Fault {
    /// The address (CR2).
    pub va: VirtAddr,
    /// Why the access faulted.
    pub kind: FaultKind,
    /// What was tried.
    pub access: Access,
    /// By whom.
    pub mode: Privilege,
    /// What the walk cost; the exception itself is charged by the caller.
    pub cost: Cost,
}

/// What an entry must show: that there is a page, the rights that the access takes, and for a store that D is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need(u64);

impl Need {
    #[inline(always)]
    pub(super) const fn new(access: Access, mode: Privilege) -> Self {
        let user = match mode {
            Privilege::User => USER,
            Privilege::Kernel => 0,
        };
        Self(
            PRESENT
                | user
                | match access {
                    Access::Read => 0,
                    Access::Write => WRITE | DIRTY,
                    Access::Execute => EXECUTE,
                },
        )
    }

    /// True if an entry with this data answers the access.
    #[inline(always)]
    pub(super) const fn is_met_by(self, data: u64) -> bool {
        data & self.0 == self.0
    }

    /// True if these rights allow the access.
    #[inline(always)]
    pub(super) const fn is_granted_by(self, grants: u64) -> bool {
        !grants & self.0 & GRANT_ALL == 0
    }

    /// D for a store.
    #[inline(always)]
    pub(super) const fn dirty(self) -> u64 {
        self.0 & DIRTY
    }

    /// What the instruction does.
    pub(super) const fn access(self) -> Access {
        match self.0 & (WRITE | EXECUTE) {
            0 => Access::Read,
            EXECUTE => Access::Execute,
            _ => Access::Write,
        }
    }

    /// By whom.
    pub(super) const fn mode(self) -> Privilege {
        if self.0 & USER == 0 { Privilege::Kernel } else { Privilege::User }
    }
}
