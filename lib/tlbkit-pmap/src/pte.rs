//! What only software reads in a page-table entry, and which frame an entry owns.
//!
//! An entry with bits but without [`Pte::PRESENT`] still owns its frame: that is a page whose protection is "nothing".

use crate::memory::Frame;
use tlbkit_arch::Pte;

/// Software: private and possibly shared with a relative; the first store copies.
pub const COW: u64 = 1 << 9;
/// Software: the zero page, to which the entry owns no reference.
pub const ZERO: u64 = 1 << 10;
/// Software: shared on purpose; fork leaves it writable.
pub const SHARED: u64 = 1 << 11;
/// An inner entry of a user table.
pub(crate) const TABLE: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER | Pte::ACCESSED;

/// The reference that a leaf owns, now the caller's: the entry must be in no table.
#[must_use]
pub(crate) const fn into_frame(pte: Pte) -> Option<Frame> {
    if pte.is_empty() || pte.has(ZERO) {
        return None;
    }
    Some(Frame { at: pte.frame(), shift: if pte.has(Pte::LARGE) { 21 } else { 12 } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlbkit::PhysAddr;

    #[test]
    fn an_entry_of_the_zero_page_owns_nothing() {
        assert_eq!(into_frame(Pte::new(PhysAddr(0x1000), Pte::PRESENT | ZERO)), None);
        assert_eq!(into_frame(Pte::EMPTY), None);
        let large = into_frame(Pte::new(PhysAddr(0x20_0000), Pte::PRESENT | Pte::LARGE));
        assert_eq!(large, Some(Frame { at: PhysAddr(0x20_0000), shift: 21 }));
    }
}
