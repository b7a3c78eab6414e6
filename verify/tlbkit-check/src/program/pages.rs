//! Where a program's pages lie: a few at the beginning of each of three neighbouring page tables; some far away, as far
//! as the last of the user half; and two of 1 GiB.

use std::ops::Range;

use tlbkit::PAGE_BYTES;
use tlbkit_pmap::{USER_BASE, USER_END};

/// Pages of one table that programs use.
const A_TABLE: u64 = 4;
/// Pages that programs made of bytes can name.
pub(crate) const PAGES: u64 = 3 * A_TABLE;
/// The first page with its number plus 2^32: a range from one to the other spans more than 16 TiB.
pub(super) const FAR: u8 = 12;
/// The last two pages of the user half.
pub(super) const TOP: u8 = 13;
/// The first pages of two neighbouring pages of 1 GiB.
pub(super) const GIANTS: u8 = 15;
/// A count of pages: from the one that is named on, all that there are.
pub(super) const ALL: u8 = u8::MAX;

/// Where a space may have a tree of the little kernel's own: two page tables' worth.
pub(super) const TREE: Range<u64> = 3 << 30..(3 << 30) + (2 << 21);
/// The same in the kernel half, beside the windows.
pub(super) const KERNEL_TREE: Range<u64> = KERNEL_TREE_START..KERNEL_TREE_START + (2 << 21);
const KERNEL_TREE_START: u64 = 0xffff_9000_c000_0000;

/// The addresses of those two pages.
pub(super) const GIANT_RANGE: Range<u64> = 1 << 30..3 << 30;

/// Address of page `n`.
pub(super) const fn address(n: u8) -> u64 {
    match n {
        FAR => USER_BASE + (PAGE_BYTES << 32),
        TOP..GIANTS => USER_END - (GIANTS - n) as u64 * PAGE_BYTES,
        GIANTS.. => GIANT_RANGE.start + (((n - GIANTS) % 2) as u64) * (1 << 30),
        n => USER_BASE + ((n as u64 / A_TABLE) << 21) + ((n as u64 % A_TABLE) << 12),
    }
}

/// The addresses of `count` pages from page `n` on. From the last page of a table they go on into the next.
pub(super) fn range(n: u8, count: u8) -> Range<u64> {
    let first = address(n);
    if count == ALL {
        return first..USER_END;
    }
    if u64::from(n) >= PAGES {
        return first..first + u64::from(count.max(1)) * PAGE_BYTES;
    }
    let last = u64::from(n) + u64::from(count.max(1)) - 1;
    first..address(last.min(PAGES - 1) as u8) + PAGE_BYTES
}
