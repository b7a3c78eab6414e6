//! How one translation is packed into two words: the key that a look-up compares, and the data that it returns.
//!
//! ```text
//! key   63 .. 19 page number   18 .. 17 size   16 .. 0 stamp
//! data  63 .. 52 tag index     51 .. 12 frame  11 .. 0 flags
//! ```
//!
//! Look-alikes, told apart: a *tag index* is the place of a PCID in the order in which this CPU met it; a *stamp* is
//! one lifetime of such a tag ([`super::epochs`]). A flush gives the tag a new stamp, so the old keys match nothing.
//! A key of zero is an empty slot; no stamp is zero.

use tlbkit::{PhysAddr, VirtAddr};
use tlbkit_arch::Pte;

/// Bits of a stamp.
pub(super) const STAMP_BITS: u32 = 17;
/// The largest stamp; beyond it a level renumbers what is alive.
pub(super) const STAMP_MAX: u32 = (1 << STAMP_BITS) - 1;
const SIZE_SHIFT: u32 = STAMP_BITS;
const PAGE_SHIFT: u32 = SIZE_SHIFT + 2;
/// Bits of a linear address that translation looks at, with five levels.
const LINEAR_MASK: u64 = (1 << 57) - 1;

/// There is a page.
pub(super) const PRESENT: u64 = Pte::PRESENT;
/// The page may be written.
pub(super) const WRITE: u64 = Pte::WRITE;
/// User mode may use the page.
pub(super) const USER: u64 = Pte::USER;
/// The page may be executed.
pub(super) const EXECUTE: u64 = 1 << 3;
/// The D bit of the leaf is known to be set.
pub(super) const DIRTY: u64 = Pte::DIRTY;
/// The entry serves every tag.
pub(super) const GLOBAL: u64 = Pte::GLOBAL;
/// Everything a page table may grant; narrowed level by level.
pub(super) const GRANT_ALL: u64 = WRITE | USER | EXECUTE;
const ORIGIN_SHIFT: u32 = 4;
const FRAME_MASK: u64 = Pte::ADDRESS;
const TAG_SHIFT: u32 = 52;

/// Size of a page: the index of everything that is kept per size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PageSize {
    /// 4 KiB.
    Small = 0,
    /// 2 MiB.
    Large = 1,
    /// 1 GiB.
    Huge = 2,
}

impl PageSize {
    /// All sizes, the smallest first.
    pub const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Huge];

    /// log2 of the size in bytes.
    #[must_use]
    pub const fn shift(self) -> u32 {
        12 + 9 * self as u32
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// Number of the page of this size that contains `va`.
    pub(super) const fn page_of(self, va: VirtAddr) -> u64 {
        (va.0 & LINEAR_MASK) >> self.shift()
    }
}

/// A page as arrays look for it: its number, and its key but for the stamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) page: u64,
    unstamped: u64,
}

impl Spot {
    /// Page number `page` of `size`.
    #[inline(always)]
    pub(super) const fn new(page: u64, size: PageSize) -> Self {
        Self { page, unstamped: page << PAGE_SHIFT | (size as u64) << SIZE_SHIFT }
    }

    /// The page of `size` around `va`.
    #[inline(always)]
    pub(super) const fn of(va: VirtAddr, size: PageSize) -> Self {
        Self::new(size.page_of(va), size)
    }

    /// The size.
    #[inline(always)]
    pub(super) const fn kind(self) -> usize {
        (self.unstamped >> SIZE_SHIFT & 3) as usize
    }

    /// The key under `stamp`.
    #[inline(always)]
    pub(super) const fn key(self, stamp: u32) -> u64 {
        self.unstamped | stamp as u64
    }
}

/// The stamp in a key.
pub(super) const fn stamp_of(key: u64) -> u32 {
    (key & STAMP_MAX as u64) as u32
}

/// The key under another stamp.
pub(super) const fn restamped(key: u64, stamp: u32) -> u64 {
    key & !(STAMP_MAX as u64) | stamp as u64
}

/// The number of the page, in units of its size.
#[inline(always)]
pub(super) const fn page_in(key: u64) -> u64 {
    key >> PAGE_SHIFT
}

/// True if both keys name one page of one size, whatever their stamps.
pub(super) const fn same_page(a: u64, b: u64) -> bool {
    (a ^ b) >> STAMP_BITS == 0
}

/// First and last base page that the key covers.
pub(super) const fn span_of(key: u64) -> (u64, u64) {
    let size_bits = 9 * ((key >> SIZE_SHIFT & 3) as u32);
    let first = page_in(key) << size_bits;
    (first, first + (1 << size_bits) - 1)
}

/// The data of an entry: `frame` is the base of the cached piece, `origin` the size of the page that the table maps.
pub(super) const fn data(frame: PhysAddr, flags: u64, origin: PageSize, tag: u16) -> u64 {
    frame.0 & FRAME_MASK | flags | (origin as u64) << ORIGIN_SHIFT | (tag as u64) << TAG_SHIFT
}

/// The frame in a data word.
#[inline(always)]
pub(super) const fn frame_of(data: u64) -> u64 {
    data & FRAME_MASK
}

/// The data of the base page around `va`, out of the data of a page of `size`.
#[inline(always)]
pub(super) const fn base_page_of(data: u64, va: VirtAddr, size: PageSize) -> u64 {
    data | va.0 & (size.bytes() - PageSize::Small.bytes())
}

/// The tag index in a data word.
pub(super) const fn tag_of(data: u64) -> u16 {
    (data >> TAG_SHIFT) as u16
}

/// log2 of the number of base pages of the page that the table maps, of which this entry may be a piece.
pub(super) const fn origin_bits_of(data: u64) -> u32 {
    9 * ((data >> ORIGIN_SHIFT & 3) as u32)
}
