//! Where a program's pages lie: a few at the beginning of each of three neighbouring page tables.

use tlbkit_pmap::USER_BASE;

/// Pages of one table that programs use.
const A_TABLE: u64 = 4;
/// Pages that programs can name.
pub(crate) const PAGES: u64 = 3 * A_TABLE;

/// Address of page `n`.
pub(super) const fn address(n: u8) -> u64 {
    let n = n as u64 % PAGES;
    USER_BASE + ((n / A_TABLE) << 21) + ((n % A_TABLE) << 12)
}

/// The addresses of `count` pages from page `n` on. From the last page of a table they go on into the next.
pub(super) fn range(n: u8, count: u8) -> std::ops::Range<u64> {
    let first = address(n);
    let last = u64::from(n) % PAGES + u64::from(count.max(1)) - 1;
    first..address(last.min(PAGES - 1) as u8) + 4096
}
