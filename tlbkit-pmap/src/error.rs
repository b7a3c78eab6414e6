//! Why an operation could not be done. Nothing was changed that the caller would have to undo.

use core::fmt;

/// Why an operation could not be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No frame was left for a page table or a copy.
    OutOfMemory,
    /// The space would have more than [`MAX_REGIONS`](crate::MAX_REGIONS) regions.
    TooManyRegions,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => write!(f, "no frame left for a page table or a copy"),
            Self::TooManyRegions => write!(f, "more than {} regions in one space", crate::MAX_REGIONS),
        }
    }
}

impl core::error::Error for Error {}
