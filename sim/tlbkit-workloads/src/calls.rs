//! What a workload's calls mean to the kernel that carries them out, as far as it is the same on every kernel.

use tlbkit_arch::SplitMix64;
use tlbkit_arch::random::mix;
use tlbkit_pmap::{Backing, ChildFill, Protection, Region, WINDOW_PAGES};

use crate::pattern::MAPPED_FILE;

/// How the page tables of a forked child are filled: both kernels of this repository map all memory.
pub const CHILD_FILL: ChildFill = ChildFill::DirectMap;

/// What [`Os::map`](crate::Os::map) asks the address space for: of files, [`MAPPED_FILE`].
pub fn region(pages: u64, backing: Backing, protection: Protection) -> Region {
    Region { file: MAPPED_FILE, ..Region::new(pages, backing, protection) }
}

/// Where a kernel whose CPUs have upper page tables of their own looks first for free addresses for a thread: 256 MiB
/// from the next one's, so that few tables are shared.
#[must_use]
pub const fn address_apart(thread: u32) -> u64 {
    const THREADS_APART: u64 = 4096;
    (thread as u64 % THREADS_APART) << 28
}

/// The pieces in which [`Os::read_file`](crate::Os::read_file) reads `pages` pages: for each window of the kernel's own
/// addresses the first page of the file that it maps, and how many.
pub fn windows(pages: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..pages).step_by(WINDOW_PAGES as usize);
    starts.map(move |first| (first, (pages - first).min(WINDOW_PAGES)))
}

/// The random numbers of one task (SplitMix64). They are the same on every kernel for the same run and task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskRandom(SplitMix64);

impl TaskRandom {
    /// The stream of the task that a run started as its `number`th, counted from 0. `run_seed` is the run's.
    #[must_use]
    pub const fn new(run_seed: u64, number: u64) -> Self {
        Self(SplitMix64::new(mix(run_seed ^ mix(number + 1))))
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0.bits()
    }
}
