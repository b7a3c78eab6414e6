//! Why an operation failed. The caller has nothing to undo.

use crate::region::{Full, MAX_REGIONS};
use crate::table::USER_END;
use core::fmt;

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No frame was left for a page-table page or a copy.
    OutOfMemory,
    /// No free range of addresses is long enough, or the mapping has no pages at all.
    NoRoom {
        /// The number of pages that were to be mapped.
        pages: u64,
    },
    /// A large page of shared memory, which other spaces map too, would have to be split. Only its last holder can
    /// split it.
    SharedLargePage {
        /// An address in the page.
        va: u64,
    },
    /// The space has, or had, large pages, and CPUs with [directories of their own](crate::Vm::give_directories) share
    /// none.
    HadLargePages,
    /// The space would have more than [`MAX_REGIONS`](crate::MAX_REGIONS) regions.
    TooManyRegions,
    /// Pages at this address were retired, and other CPUs may use them yet.
    Withheld {
        /// Where a frame was to be entered.
        va: u64,
    },
    /// The range is not page-aligned, or extends beyond [`USER_END`](crate::USER_END).
    BadRange {
        /// Its first address.
        va: u64,
        /// Its number of pages.
        pages: u64,
    },
}

impl From<Full> for Error {
    fn from(_: Full) -> Self {
        Self::TooManyRegions
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => write!(f, "no frame left for a page table or a copy"),
            Self::NoRoom { pages } => write!(f, "{pages} pages to map: must be 1 to as many as are free in a row"),
            Self::SharedLargePage { va } => write!(f, "the large page at {va:#x} is shared, so it cannot be split"),
            Self::HadLargePages => write!(f, "the space has had large pages, so CPUs have no directories of their own"),
            Self::TooManyRegions => write!(f, "more than {} regions in one space", MAX_REGIONS),
            Self::Withheld { va } => write!(f, "what was retired at {va:#x} is in use yet"),
            Self::BadRange { va, pages } => {
                write!(f, "{pages} pages from {va:#x} on are not all whole pages below {:#x}", USER_END)
            }
        }
    }
}

impl core::error::Error for Error {}
