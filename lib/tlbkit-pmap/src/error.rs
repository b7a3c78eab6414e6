//! Why an operation could not be done. Nothing was changed that the caller would have to undo.

use crate::region::{Full, MAX_REGIONS};
use crate::table::USER_END;
use core::fmt;

/// Why an operation could not be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No frame was left for a page table or a copy.
    OutOfMemory,
    /// No such stretch of addresses is free, or a mapping of no pages at all was asked for.
    NoRoom {
        /// How many pages it would have had.
        pages: u64,
    },
    /// A large page of shared memory that other spaces map too would have to be cut. Nobody but its last holder can.
    SharedLargePage {
        /// An address in it.
        va: u64,
    },
    /// The space would have more than [`MAX_REGIONS`](crate::MAX_REGIONS) regions.
    TooManyRegions,
    /// Pages that are not all whole pages below [`USER_END`](crate::USER_END).
    BadRange {
        /// Where they begin.
        va: u64,
        /// How many.
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
            Self::SharedLargePage { va } => write!(f, "the large page at {va:#x} is shared, so it cannot be cut"),
            Self::TooManyRegions => write!(f, "more than {} regions in one space", MAX_REGIONS),
            Self::BadRange { va, pages } => {
                write!(f, "{pages} pages from {va:#x} on are not all whole pages below {:#x}", USER_END)
            }
        }
    }
}

impl core::error::Error for Error {}
