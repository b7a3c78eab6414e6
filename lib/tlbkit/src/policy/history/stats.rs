//! Counters by reason, and the size histogram.

use crate::policy::Reason;
use crate::sync::Owned;

/// Where a flush of one reason had its effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Place {
    /// On the CPU that asked, user addresses.
    Local,
    /// Interrupts sent to others, any address.
    Remote,
    /// On the CPU that asked, kernel addresses.
    Kernel,
}

impl Place {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 3] = [Self::Local, Self::Remote, Self::Kernel];
}

/// Sizes that have a row of their own: 1 to this many pages.
pub const SIZES: usize = 512;

/// One row of the histogram of flush sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SizeRow {
    /// Flushes of this size.
    pub samples: u64,
    /// Cycles of their local halves, interrupts sent included.
    pub cycles: u64,
}

/// One CPU's counters; only it writes them.
pub struct CpuStats {
    events: [[Owned; 3]; Reason::ALL.len()],
    samples: [Owned; SIZES + 1],
    cycles: [Owned; SIZES + 1],
}

impl CpuStats {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            events: [const { [const { Owned::new(0) }; 3] }; Reason::ALL.len()],
            samples: [const { Owned::new(0) }; SIZES + 1],
            cycles: [const { Owned::new(0) }; SIZES + 1],
        }
    }

    /// Flushes for `reason` at `place`.
    #[must_use]
    pub fn events(&self, reason: Reason, place: Place) -> u64 {
        self.events[reason as usize][place as usize].get()
    }

    /// The histogram's row for `pages` pages, 1 to [`SIZES`]; 0 for flushes of everything.
    #[must_use]
    pub fn size(&self, pages: usize) -> SizeRow {
        SizeRow { samples: self.samples[pages].get(), cycles: self.cycles[pages].get() }
    }

    /// Counts `n` more flushes for `reason` at `place`.
    pub(super) fn add(&self, reason: Reason, place: Place, n: u64) {
        let cell = &self.events[reason as usize][place as usize];
        cell.set(cell.get() + n);
    }

    /// Counts one flush of `pages` pages (`None` for everything) whose local half took `cycles`. Sizes without a row
    /// count as everything: nobody flushes more than 512 pages one by one.
    pub(super) fn add_size(&self, pages: Option<u32>, cycles: u64) {
        let row = pages.map_or(0, |pages| if pages as usize <= SIZES { pages as usize } else { 0 });
        self.samples[row].set(self.samples[row].get() + 1);
        self.cycles[row].set(self.cycles[row].get() + cycles);
    }
}

impl Default for CpuStats {
    fn default() -> Self {
        Self::new()
    }
}
