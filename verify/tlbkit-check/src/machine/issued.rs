//! A flush that a task has issued and not waited for yet: any CPU may go on with it, as the task can.

use std::ops::Range;

use tlbkit::sync::AtomicU64;
use tlbkit_pmap::Withdrawal;

pub(crate) struct Issued<'k> {
    pub(crate) withdrawal: Withdrawal<'k, &'k [AtomicU64]>,
    /// The operation that took the pages, which goes on when it is waited for.
    pub(crate) operation: u32,
    pub(crate) space: usize,
    pub(crate) range: Range<u64>,
}
