//! A page-table entry: the bits that hardware knows, three that only software reads, and which change needs a flush.

use crate::memory::Frame;
use tlbkit::PhysAddr;

/// An entry of any level. All zeros is empty. An entry with bits but without [`PRESENT`](Self::PRESENT) still owns its
/// frame: that is a page whose protection is "nothing".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pte(pub u64);

impl Pte {
    /// Nothing mapped, nothing owned.
    pub const EMPTY: Self = Self(0);
    /// Hardware may use the entry.
    pub const PRESENT: u64 = 1;
    /// Stores are allowed.
    pub const WRITE: u64 = 1 << 1;
    /// User mode may use it.
    pub const USER: u64 = 1 << 2;
    /// Hardware has cached it at least once.
    pub const ACCESSED: u64 = 1 << 5;
    /// Hardware has stored through it. To be believed only after the flush that follows the clearing of `WRITE` (C-42).
    pub const DIRTY: u64 = 1 << 6;
    /// At level 2: a 2 MiB page and not a table.
    pub const LARGE: u64 = 1 << 7;
    /// Survives a change of CR3.
    pub const GLOBAL: u64 = 1 << 8;
    /// Software: private and possibly shared with a relative; the first store copies.
    pub const COW: u64 = 1 << 9;
    /// Software: the zero page, to which the entry owns no reference.
    pub const ZERO: u64 = 1 << 10;
    /// Software: shared on purpose; fork leaves it writable.
    pub const SHARED: u64 = 1 << 11;
    /// Instructions may not be fetched.
    pub const NO_EXECUTE: u64 = 1 << 63;
    /// An inner entry of a user table.
    pub(crate) const TABLE: u64 = Self::PRESENT | Self::WRITE | Self::USER | Self::ACCESSED;

    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

    /// An entry for `at` with `bits`.
    #[must_use]
    pub const fn new(at: PhysAddr, bits: u64) -> Self {
        Self(at.0 | bits)
    }

    /// The frame's address.
    #[must_use]
    pub const fn frame(self) -> PhysAddr {
        PhysAddr(self.0 & Self::ADDRESS)
    }

    /// True if all `bits` are set.
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// True if nothing is mapped and nothing owned.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The entry with `bits` set.
    #[must_use]
    pub const fn with(self, bits: u64) -> Self {
        Self(self.0 | bits)
    }

    /// The entry with `bits` cleared.
    #[must_use]
    pub const fn without(self, bits: u64) -> Self {
        Self(self.0 & !bits)
    }

    /// Everything but the address.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0 & !Self::ADDRESS
    }

    /// The reference that a leaf owns, now the caller's: the entry must be in no table.
    #[must_use]
    pub(crate) fn into_frame(self) -> Option<Frame> {
        let shift = if self.has(Self::LARGE) { 21 } else { 12 };
        (!self.is_empty() && !self.has(Self::ZERO)).then(|| Frame { at: self.frame(), shift })
    }

    /// True if a CPU may hold a translation of `self` that allows, or reaches, what `new` does not (C-40).
    ///
    /// Nothing for an entry that was not present, nor for wider permissions: a stale entry then faults, and faulting
    /// drops it. An entry whose A bit was clear when it was taken need not be cached anywhere; that is not relied upon.
    #[must_use]
    pub const fn needs_flush(self, new: Self) -> bool {
        let losable = Self::PRESENT | Self::WRITE | Self::USER | Self::ACCESSED | Self::DIRTY;
        let fixed = Self::ADDRESS | Self::LARGE | Self::GLOBAL;
        let lost = self.0 & !new.0 & losable != 0;
        let gained = new.0 & !self.0 & Self::NO_EXECUTE != 0;
        self.has(Self::PRESENT) && (lost || gained || (self.0 ^ new.0) & fixed != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u64 = Pte::PRESENT | Pte::USER | Pte::ACCESSED;

    fn flushes(old: u64, new: u64) -> bool {
        Pte::new(PhysAddr(0x1000), old).needs_flush(Pte::new(PhysAddr(0x1000), new))
    }

    #[test]
    fn c_40_less_needs_a_flush_and_more_does_not() {
        for lost in [Pte::PRESENT, Pte::WRITE, Pte::USER, Pte::ACCESSED, Pte::DIRTY] {
            let all = READ | Pte::WRITE | Pte::DIRTY;
            assert!(flushes(all, all & !lost), "{lost:#x} lost");
        }
        assert!(flushes(READ, READ | Pte::NO_EXECUTE));
        assert!(flushes(READ, READ | Pte::GLOBAL));
        assert!(!flushes(READ, READ | Pte::WRITE | Pte::DIRTY));
        assert!(!flushes(READ | Pte::NO_EXECUTE, READ));
        assert!(!flushes(READ, READ | Pte::COW), "software bits are nobody's business");
        assert!(!flushes(Pte::USER | Pte::WRITE, 0), "never cached");
    }

    #[test]
    fn c_40_another_frame_needs_a_flush_unless_it_was_not_present() {
        let other = Pte::new(PhysAddr(0x2000), READ);
        assert!(Pte::new(PhysAddr(0x1000), READ).needs_flush(other));
        assert!(!Pte::EMPTY.needs_flush(other));
        assert!(!Pte::new(PhysAddr(0x1000), Pte::USER).needs_flush(other));
    }

    #[test]
    fn an_entry_of_the_zero_page_owns_nothing() {
        assert_eq!(Pte::new(PhysAddr(0x1000), READ | Pte::ZERO).into_frame(), None);
        assert_eq!(Pte::EMPTY.into_frame(), None);
        let large = Pte::new(PhysAddr(0x20_0000), READ | Pte::LARGE).into_frame();
        assert_eq!(large, Some(Frame { at: PhysAddr(0x20_0000), shift: 21 }));
    }
}
