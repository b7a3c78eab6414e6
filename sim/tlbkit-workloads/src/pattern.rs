//! What a page must hold: words that name their place, so that a page found at the wrong place is seen.

use crate::os::{Os, read_expecting};

/// Bytes of a base page.
pub const PAGE_BYTES: u64 = 4096;

/// Pages that one last-level page table maps.
pub(crate) const PAGES_OF_A_TABLE: u64 = 512;

/// The file that [`Os::map`] maps, from its first page on.
pub const MAPPED_FILE: u32 = 0;

/// The word that page `page` of file `file` holds; a kernel fills its file pages with it.
pub const fn file_pattern(file: u32, page: u64) -> u64 {
    (0xf11e << 48) | ((file as u64 & 0xffff) << 32) | ((page + 1) & 0xffff_ffff)
}

/// The word that the task or round `owner` stores in its page `page`. Never zero, never a file's word.
pub const fn stamp(owner: u64, page: u64) -> u64 {
    (0xa << 60) | ((owner & 0xfff_ffff) << 32) | ((page + 1) & 0xffff_ffff)
}

/// The address of page `page` of the mapping at `base`.
pub(crate) const fn page_at(base: u64, page: u64) -> u64 {
    base + page * PAGE_BYTES
}

/// Stores `owner`'s stamps in `pages` pages from `base`.
pub(crate) fn write_stamps(os: &dyn Os, base: u64, pages: u64, owner: u64) {
    for page in 0..pages {
        os.write(page_at(base, page), stamp(owner, page));
    }
}

/// Loads `pages` pages from `base`, which must hold `owner`'s stamps.
pub(crate) fn read_stamps(os: &dyn Os, base: u64, pages: u64, owner: u64) {
    for page in 0..pages {
        read_expecting(os, page_at(base, page), stamp(owner, page));
    }
}

/// Loads `pages` pages from `base`, which must hold zero.
pub(crate) fn read_zeros(os: &dyn Os, base: u64, pages: u64) {
    for page in 0..pages {
        read_expecting(os, page_at(base, page), 0);
    }
}

/// Loads `pages` pages of a file mapping at `base`.
pub(crate) fn read_file_pages(os: &dyn Os, base: u64, pages: u64) {
    for page in 0..pages {
        read_expecting(os, page_at(base, page), file_pattern(MAPPED_FILE, page));
    }
}

/// Loads the page at `va` and reports it unless it holds zero or `other`.
pub(crate) fn read_zero_or(os: &dyn Os, va: u64, other: u64) -> u64 {
    let found = os.read(va);
    if found != 0 && found != other {
        os.wrong_value(va, found, other);
    }
    found
}
