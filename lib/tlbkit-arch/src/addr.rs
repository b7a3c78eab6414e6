//! Address arithmetic: levels of page tables, indices into them, canonical addresses.
//!
//! A *level* is 1 for a table of base pages, 2 for a page directory, 3 for a table of page directories, 4 for the
//! top-level table, and 5 for the one above it where a CPU has that.

use tlbkit::{PhysAddr, Stride, VirtAddr};

/// Level of the top-level table of four.
pub const TOP_LEVEL: u32 = 4;

/// Entries of one table.
pub const TABLE_ENTRIES: u64 = 512;

const ENTRY_BYTES: u64 = 8;
const INDEX_BITS: u32 = 9;
const PAGE_SHIFT: u32 = 12;

/// log2 of the bytes that one entry of a table of `level` covers.
#[inline]
#[must_use]
pub const fn span_shift(level: u32) -> u32 {
    PAGE_SHIFT + INDEX_BITS * (level - 1)
}

/// The first address that the entry of `va` in a table of `level` covers.
#[inline]
#[must_use]
pub const fn span_start(va: VirtAddr, level: u32) -> VirtAddr {
    VirtAddr(va.0 >> span_shift(level) << span_shift(level))
}

/// The first address after `va` that another entry of a table of `level` covers.
///
/// # Panics
/// In a debug build, if there is none: `va` lies in the last such span of all addresses.
#[inline]
#[must_use]
pub const fn next(va: VirtAddr, level: u32) -> VirtAddr {
    VirtAddr(((va.0 >> span_shift(level)) + 1) << span_shift(level))
}

/// Which of its 512 entries a table of `level` has for `va`.
#[inline]
#[must_use]
pub const fn index(va: VirtAddr, level: u32) -> u64 {
    (va.0 >> span_shift(level)) % TABLE_ENTRIES
}

/// Where the entry for `va` lies in `table`, which is of `level`.
#[inline]
#[must_use]
pub const fn entry_at(table: PhysAddr, va: VirtAddr, level: u32) -> PhysAddr {
    PhysAddr(table.0 + ENTRY_BYTES * index(va, level))
}

/// The size of a page that an entry of `level` maps.
///
/// # Panics
/// For a level that maps no pages: 0, or above 3.
#[inline]
#[must_use]
pub const fn stride(level: u32) -> Stride {
    match level {
        1 => Stride::Page4K,
        2 => Stride::Page2M,
        3 => Stride::Page1G,
        _ => panic!("entries of this level map no pages"),
    }
}

/// Bytes of each of the two canonical halves, with so many levels of tables.
#[inline]
#[must_use]
pub const fn half_bytes(levels: u32) -> u64 {
    1 << (span_shift(levels) + INDEX_BITS - 1)
}

/// True if `va` lies in the lowest or in the highest `half_bytes` bytes of all addresses: then the bits that no level
/// of the tables looks at repeat the topmost bit that one does.
#[inline]
#[must_use]
pub const fn is_canonical_within(va: VirtAddr, half_bytes: u64) -> bool {
    va.0.wrapping_add(half_bytes) < 2 * half_bytes
}

/// True if `va` is canonical with four levels of tables.
#[inline]
#[must_use]
pub const fn is_canonical(va: VirtAddr) -> bool {
    is_canonical_within(va, half_bytes(TOP_LEVEL))
}
