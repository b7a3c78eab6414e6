//! The software bits of a page-table entry, and the frame that an entry owns.
//!
//! An entry that is not empty but lacks [`Pte::PRESENT`] still owns its frame: it maps a page without any permission,
//! as `PROT_NONE` leaves it.

use crate::memory::Frame;
use tlbkit_arch::Pte;

/// The page is private, and its frame may be shared after a fork: the first store copies it.
pub const COW: u64 = 1 << 9;
/// The entry maps the zero page, to which it owns no reference.
pub const ZERO: u64 = 1 << 10;
/// The page belongs to a shared mapping: fork leaves it writable.
pub const SHARED: u64 = 1 << 11;
/// The bits of an entry that points to a page-table page of the user half.
pub(crate) const TABLE: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER | Pte::ACCESSED;

/// The reference that a leaf entry owns, which passes to the caller. The entry must have been removed from its table.
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
