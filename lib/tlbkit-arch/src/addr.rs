//! Address arithmetic: page-table levels, indices, canonical addresses.
//!
//! Level 1 is the page table (Linux: PTE), 2 the page directory (PMD), 3 the page-directory-pointer table (PUD), 4 the
//! PML4 (PGD, or P4D with five levels), and 5 the PML5 (PGD) of CPUs that have one.

use tlbkit::{PhysAddr, Stride, VirtAddr};

/// The level of the top-level table, with four-level paging.
pub const TOP_LEVEL: u32 = 4;

/// The number of entries in a table.
pub const TABLE_ENTRIES: u64 = 512;

const ENTRY_BYTES: u64 = 8;
const INDEX_BITS: u32 = 9;
const PAGE_SHIFT: u32 = 12;

/// log2 of the bytes that an entry of `level` maps.
#[inline]
#[must_use]
pub const fn span_shift(level: u32) -> u32 {
    PAGE_SHIFT + INDEX_BITS * (level - 1)
}

/// The first address that is mapped by the entry of `va` at `level`.
#[inline]
#[must_use]
pub const fn span_start(va: VirtAddr, level: u32) -> VirtAddr {
    VirtAddr(va.0 >> span_shift(level) << span_shift(level))
}

/// The first address after `va` that is mapped by another entry of `level`, like `pmd_addr_end`.
///
/// # Panics
/// In a debug build, if `va` is mapped by the last entry, so that there is no such address.
#[inline]
#[must_use]
pub const fn next(va: VirtAddr, level: u32) -> VirtAddr {
    VirtAddr(((va.0 >> span_shift(level)) + 1) << span_shift(level))
}

/// The index of the entry for `va` in a table of `level`.
#[inline]
#[must_use]
pub const fn index(va: VirtAddr, level: u32) -> u64 {
    (va.0 >> span_shift(level)) % TABLE_ENTRIES
}

/// The address of the entry for `va` in `table`, which is a table of `level`.
#[inline]
#[must_use]
pub const fn entry_at(table: PhysAddr, va: VirtAddr, level: u32) -> PhysAddr {
    PhysAddr(table.0 + ENTRY_BYTES * index(va, level))
}

/// The size of the pages that entries of `level` can map.
///
/// # Panics
/// If entries of that level cannot map pages: level 0, or above 3.
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

/// The size of each of the two canonical halves of the address space, with `levels` page-table levels.
#[inline]
#[must_use]
pub const fn half_bytes(levels: u32) -> u64 {
    1 << (span_shift(levels) + INDEX_BITS - 1)
}

/// True if `va` lies in the lowest or the highest `half_bytes` bytes of the address space, so that the bits above those
/// that are translated are a sign extension of the highest translated one.
#[inline]
#[must_use]
pub const fn is_canonical_within(va: VirtAddr, half_bytes: u64) -> bool {
    va.0.wrapping_add(half_bytes) < 2 * half_bytes
}

/// True if `va` is canonical with four-level paging.
#[inline]
#[must_use]
pub const fn is_canonical(va: VirtAddr) -> bool {
    is_canonical_within(va, half_bytes(TOP_LEVEL))
}
