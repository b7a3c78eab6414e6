//! While one CPU acts, what the next one will begin with is fetched into the host's caches.
//!
//! With thousands of simulated CPUs, the host's caches no longer hold a CPU's data when its turn comes, and each cache
//! line would be found only after the one that points to it.

use std::cell::Cell;

use crate::host::prefetch_lines;

/// Lines of a stack, from the frame that suspended on, that a CPU touches when it goes on: the frames of a system call
/// and its wait.
const STACK_LINES: usize = 6;

/// Where on its stack each CPU was when it was suspended: an address, or 0.
pub(super) struct Frames(Box<[Cell<usize>]>);

impl Frames {
    pub(super) fn new(cpus: usize) -> Self {
        Self(vec![Cell::new(0); cpus].into())
    }

    /// Notes the caller's frame as that of the CPU.
    #[inline(always)]
    pub(super) fn note(&self, cpu: usize) {
        let here = 0_u8;
        self.0[cpu].set((&raw const here).addr());
    }

    /// Fetches the part of its stack that the CPU goes on with.
    #[inline]
    pub(super) fn prefetch(&self, cpu: usize) {
        prefetch_lines(self.0[cpu].get(), STACK_LINES);
    }
}
