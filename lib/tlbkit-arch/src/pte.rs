//! A page-table entry: the bits that hardware knows, what they say to a walk, and which change of them needs a flush.

use tlbkit::{PhysAddr, Stride};

use crate::addr::stride;

/// An entry of any level. Bits 9 to 11 and 52 to 58 belong to software: hardware never looks at them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pte(pub u64);

impl Pte {
    /// All zeros.
    pub const EMPTY: Self = Self(0);
    /// Hardware may use the entry. While this bit is clear, it looks at no other, and caches nothing.
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
    /// Set by hardware before it stores through the entry. A CPU that holds an older translation may still set it
    /// after software has cleared `WRITE`: it is to be believed only after the flush that follows (C-42).
    pub const DIRTY: u64 = 1 << 6;
    /// At levels 2 and 3: a page of 2 MiB or 1 GiB, and not a table.
    pub const LARGE: u64 = 1 << 7;
    /// The translation is used under every tag, and survives a change of CR3. Only in an entry that maps a page.
    pub const GLOBAL: u64 = 1 << 8;
    /// The protection key, where a CPU has them.
    pub const PROTECTION_KEY: u64 = 0xf << 59;
    /// Instructions may not be fetched.
    pub const NO_EXECUTE: u64 = 1 << 63;

    /// The bits that hold the address of a frame or of a table.
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

    /// An entry for `at` with `bits`.
    #[inline]
    #[must_use]
    pub const fn new(at: PhysAddr, bits: u64) -> Self {
        Self(at.0 | bits)
    }

    /// The address of the frame or of the table.
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

    /// Everything but the address.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0 & !Self::ADDRESS
    }

    /// True if an entry of `level` maps a page and leads to no table, should it be present.
    #[inline]
    #[must_use]
    pub const fn is_leaf(self, level: u32) -> bool {
        level == 1 || level <= 3 && self.has(Self::LARGE)
    }

    /// Where a walk goes on that has read this entry in a table of `level`.
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

    /// True if a CPU may hold a translation of `self` that allows, or reaches, what `new` does not (C-40).
    ///
    /// Nothing for an entry that was not present, nor for wider permissions: a stale translation then faults, and
    /// the fault invalidates it. An entry whose A bit was clear when it was taken need not be cached anywhere; that is
    /// not relied upon.
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

/// What an entry says to a walk that has read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkStep {
    /// The walk ends in a page fault, and nothing is cached.
    NotPresent,
    /// It goes on in this table, one level lower.
    Table(PhysAddr),
    /// It ends at this page, which begins at this frame.
    Page(PhysAddr, Stride),
}

/// What the entries that a walk has read so far allow all together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// All of them allow stores.
    pub may_write: bool,
    /// All of them allow user mode.
    pub is_user: bool,
}

impl Rights {
    /// Of a walk that has read nothing yet.
    pub const ALL: Self = Self { may_write: true, is_user: true };

    /// What is left below `pte`.
    #[inline]
    #[must_use]
    pub const fn below(self, pte: Pte) -> Self {
        Self { may_write: self.may_write && pte.has(Pte::WRITE), is_user: self.is_user && pte.has(Pte::USER) }
    }
}
