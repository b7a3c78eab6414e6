//! Hardware that does less than the manual says, or a kernel that does what it must not, one switch each: each oracle
//! must be heard to find one of them.

/// Which instructions misbehave. All off by default: a machine that keeps to the manual.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Errata {
    bits: u16,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Erratum {
    /// INVLPG leaves global entries while CR4.PCIDE is set: Alder Lake and Raptor Lake below a microcode version.
    InvlpgMissesGlobals,
    /// INVLPG leaves the paging-structure caches.
    InvlpgKeepsPaths,
    /// A broadcast invalidation with a stride of 2 MiB leaves the base pages: FreeBSD EN-26:10.
    BroadcastStrideSkips,
    /// INVPCID takes its address for its tag and the other way round.
    InvpcidSwapped,
    /// Bit 63 of CR3 keeps entries although PCIDs are off.
    KeepsWithoutPcid,
    /// Every second interrupt is lost.
    InterruptLost,
    /// INVLPG does nothing.
    InvlpgIgnored,
    /// A write to CR3 keeps what its PCID holds, whatever bit 63 says.
    Cr3Keeps,
    /// INVPCID faults though CPUID reports it.
    InvpcidFaults,
    /// An exchange does not return the dirty bit.
    ExchangeHidesDirty,
    /// The kernel takes a space for free that a CPU still holds.
    FreedTooEarly,
    /// The kernel forgets that it was told of the last lazy reference.
    NoticeForgotten,
}

impl Erratum {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::InvlpgMissesGlobals,
        Self::InvlpgKeepsPaths,
        Self::BroadcastStrideSkips,
        Self::InvpcidSwapped,
        Self::KeepsWithoutPcid,
        Self::InterruptLost,
        Self::InvlpgIgnored,
        Self::Cr3Keeps,
        Self::InvpcidFaults,
        Self::ExchangeHidesDirty,
        Self::FreedTooEarly,
        Self::NoticeForgotten,
    ];
}

impl Errata {
    /// None.
    pub const NONE: Self = Self { bits: 0 };

    /// With `erratum` too.
    #[must_use]
    pub const fn with(self, erratum: Erratum) -> Self {
        Self { bits: self.bits | 1 << erratum as u8 }
    }

    /// True if `erratum` is among them.
    #[must_use]
    pub const fn has(self, erratum: Erratum) -> bool {
        self.bits & 1 << erratum as u8 != 0
    }
}
