//! Hardware that does less than the manual says, one switch each.

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
}

impl Erratum {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::InvlpgMissesGlobals,
        Self::InvlpgKeepsPaths,
        Self::BroadcastStrideSkips,
        Self::InvpcidSwapped,
        Self::KeepsWithoutPcid,
        Self::InterruptLost,
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
