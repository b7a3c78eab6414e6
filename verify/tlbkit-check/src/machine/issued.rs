//! A flush that a task has issued and not waited for yet: any CPU may go on with it, as the task can.

use std::ops::Range;

use tlbkit::sync::AtomicU64;
use tlbkit::{Deferred, Pending};
use tlbkit_pmap::{Frame, Retirement, Withdrawal};

use crate::program::reclaim::Held;

pub(crate) struct Issued<'k> {
    pub(crate) flush: IssuedFlush<'k>,
    /// The operation that took the pages, which goes on when it is waited for.
    pub(crate) operation: u32,
}

/// Whose pages were taken.
pub(crate) enum IssuedFlush<'k> {
    /// Some of the pages in `range` of `space`.
    OfSpace { withdrawal: Box<Withdrawal<'k, &'k [AtomicU64]>>, space: usize, range: Range<u64> },
    /// The pages in `range` of `space`, which were retired.
    Retired { retirement: Box<Retirement>, space: usize, range: Range<u64> },
    /// Clean pages of any spaces, whose flush was deferred.
    Reclaimed(Box<Deferred<Held>>),
    /// Some of a kernel window.
    OfKernel(Box<Pending<'k, &'k [AtomicU64], Vec<Frame>>>),
}
