//! Page-table entries: the bits that hardware defines, what they mean to a page walk, and which change needs a flush.

use tlbkit::{PhysAddr, Stride};

use crate::addr::stride;

/// An entry of any level. Bits 9 to 11 and 52 to 58 are available to software: hardware ignores them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pte(pub u64);

impl Pte {
    /// The entry that is all zeros.
    pub const EMPTY: Self = Self(0);
    /// Hardware may use the entry. While this bit is clear, it ignores all others and caches nothing.
    pub const PRESENT: u64 = 1;
    /// Stores are allowed.
    pub const WRITE: u64 = 1 << 1;
    /// User mode may use it.
    pub const USER: u64 = 1 << 2;
    /// PWT and PCD: with the third bit, which lies among those of [`LARGE`](Self::LARGE) and
    /// [`ADDRESS`](Self::ADDRESS), they choose the memory type.
    pub const MEMORY_TYPE: u64 = 1 << 3 | 1 << 4;
    /// Set by hardware before it caches the entry.
    pub const ACCESSED: u64 = 1 << 5;
    /// Set by hardware before it stores through the entry. A CPU with a stale translation may still set it after
    /// software has cleared `WRITE`, so it can be relied on only after the flush (C-42).
    pub const DIRTY: u64 = 1 << 6;
    /// PS: at levels 2 and 3, the entry maps a page of 2 MiB or 1 GiB instead of pointing to a table.
    pub const LARGE: u64 = 1 << 7;
    /// The translation is used under every PCID, and survives CR3 writes. Only in an entry that maps a page.
    pub const GLOBAL: u64 = 1 << 8;
    /// The protection key, on CPUs that have them.
    pub const PROTECTION_KEY: u64 = 0xf << 59;
    /// Instructions may not be fetched.
    pub const NO_EXECUTE: u64 = 1 << 63;

    /// The bits that hold the physical address of a frame or a table.
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

    /// An entry for `at` with `bits`.
    #[inline]
    #[must_use]
    pub const fn new(at: PhysAddr, bits: u64) -> Self {
        Self(at.0 | bits)
    }

    /// The physical address of the frame or the table.
    #[inline]
    #[must_use]
    pub const fn frame(self) -> PhysAddr {
        PhysAddr(self.0 & Self::ADDRESS)
    }

    /// True if all `bits` are set.
    #[inline]
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// True if no bit is set.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The entry with `bits` set.
    #[inline]
    #[must_use]
    pub const fn with(self, bits: u64) -> Self {
        Self(self.0 | bits)
    }

    /// The entry with `bits` cleared.
    #[inline]
    #[must_use]
    pub const fn without(self, bits: u64) -> Self {
        Self(self.0 & !bits)
    }

    /// All bits except for the address.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0 & !Self::ADDRESS
    }

    /// True if an entry of `level`, if present, maps a page instead of pointing to a table.
    #[inline]
    #[must_use]
    pub const fn is_leaf(self, level: u32) -> bool {
        level == 1 || level <= 3 && self.has(Self::LARGE)
    }

    /// How a page walk continues that has read this entry in a table of `level`.
    #[inline]
    #[must_use]
    pub const fn step(self, level: u32) -> WalkStep {
        if !self.has(Self::PRESENT) {
            WalkStep::NotPresent
        } else if self.is_leaf(level) {
            let size = stride(level);
            WalkStep::Page(PhysAddr(self.frame().0 & !(size.bytes() - 1)), size)
        } else {
            WalkStep::Table(self.frame())
        }
    }

    /// True if replacing this entry by `new` needs a flush: a CPU may hold a translation of it that permits, or maps,
    /// what `new` does not (C-40). Compare `pte_needs_flush` of Linux.
    ///
    /// False for an entry that was not present, and for wider permissions: a stale translation then faults, and the
    /// fault invalidates it. An entry whose A bit was clear when it was replaced is cached nowhere, but nothing here
    /// relies on that: who does asks for it first.
    #[inline]
    #[must_use]
    pub const fn needs_flush(self, new: Self) -> bool {
        let losable = Self::PRESENT | Self::WRITE | Self::USER | Self::ACCESSED | Self::DIRTY;
        let fixed = Self::ADDRESS | Self::LARGE | Self::GLOBAL | Self::MEMORY_TYPE | Self::PROTECTION_KEY;
        let lost = self.0 & !new.0 & losable != 0;
        let gained = new.0 & !self.0 & Self::NO_EXECUTE != 0;
        self.has(Self::PRESENT) && (lost || gained || (self.0 ^ new.0) & fixed != 0)
    }
}

/// What a page walk does after it has read an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkStep {
    /// It ends in a page fault, and nothing is cached.
    NotPresent,
    /// It continues in this table, one level lower.
    Table(PhysAddr),
    /// It ends at the page of this size at this physical address.
    Page(PhysAddr, Stride),
}

/// The permissions that all entries of a walk so far have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// All of them allow stores.
    pub may_write: bool,
    /// All of them allow user-mode accesses.
    pub is_user: bool,
}

impl Rights {
    /// The permissions of a walk that has read no entry yet.
    pub const ALL: Self = Self { may_write: true, is_user: true };

    /// The permissions that are left after reading `pte`.
    #[inline]
    #[must_use]
    pub const fn below(self, pte: Pte) -> Self {
        Self { may_write: self.may_write && pte.has(Pte::WRITE), is_user: self.is_user && pte.has(Pte::USER) }
    }
}
