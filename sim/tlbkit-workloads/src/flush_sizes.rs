//! How many pages a flush of a kernel build covers, as measured; and a sampler that does nothing else.
//!
//! Source of the table: the two histograms of the post that compared INVPCID with the deferred CR3 write (4-core
//! Skylake desktop, page-table isolation on, make -j8 of a kernel). Sizes of fewer than some fifty samples are not
//! listed there, so they are absent here.

use crate::os::{Backing, Os, Protection};
use crate::parameters::{MANY, MOST_PAGES};
use crate::pattern::{read_zeros, write_stamps};
use crate::team::Rounds;

/// One row of the two histograms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushSize {
    /// Pages of the flush.
    pub pages: u64,
    /// How often it was seen with INVPCID.
    pub samples_invpcid: u64,
    /// How often it was seen with the deferred CR3 write.
    pub samples_deferred: u64,
}

const fn row(pages: u64, samples_invpcid: u64, samples_deferred: u64) -> FlushSize {
    FlushSize { pages, samples_invpcid, samples_deferred }
}

/// The two histograms side by side; 0 where one of them has no such row.
pub static FLUSH_SIZES: [FlushSize; 27] = [
    row(1, 1_238_264, 1_622_083),
    row(2, 17_451, 26_638),
    row(3, 3_926, 4_860),
    row(4, 18_200, 28_557),
    row(5, 159, 68),
    row(7, 0, 105),
    row(9, 272, 308),
    row(14, 0, 56),
    row(20, 73, 1_614),
    row(22, 824, 1_259),
    row(25, 676, 1_004),
    row(26, 807, 1_129),
    row(27, 10_977, 16_284),
    row(32, 107, 111),
    row(33, 1_022, 1_217),
    row(35, 175, 79),
    row(36, 67, 88),
    row(37, 62, 94),
    row(39, 58, 78),
    row(40, 51, 56),
    row(51, 71, 0),
    row(55, 64, 0),
    row(60, 101, 120),
    row(64, 264, 385),
    row(65, 395, 525),
    row(129, 31_205, 34_209),
    row(133, 129, 0),
];

/// The most pages of any row.
pub(crate) const LARGEST_FLUSH: u64 = 133;

impl FlushSize {
    /// How often the size is drawn: both histograms together, since a program does not know how it is flushed.
    pub const fn weight(&self) -> u64 {
        self.samples_invpcid + self.samples_deferred
    }
}

/// The sum of all weights.
pub fn flush_size_weight() -> u64 {
    FLUSH_SIZES.iter().map(FlushSize::weight).sum()
}

/// The size that the random number `random` stands for.
pub fn draw_flush_size(random: u64) -> u64 {
    let mut left = random % flush_size_weight();
    for row in &FLUSH_SIZES {
        if left < row.weight() {
            return row.pages;
        }
        left -= row.weight();
    }
    LARGEST_FLUSH
}

parameters! {
    /// Parameters of the sampler.
    pub struct FlushSizes {
        /// 0 draws each size by its weight; n flushes each row of the table n times, smallest size first, and again
        each = 0, 0..=MANY;
        /// Always this many pages instead of the table's sizes; 0 for the table
        pages = 0, 0..=MOST_PAGES;
        /// User cycles between two flushes; prior
        user_cycles = 0, 0..=MANY;
        /// Flushes; 0 until the run is over
        rounds = 0, 0..=MANY;
        /// Every how many flushes fresh pages are read, expecting zero, before they are written; 0 never
        check_fresh = 0, 0..=MANY;
    }
}

impl FlushSizes {
    /// Each flush covers as many pages as were written since the last one: all of them present, none beside them.
    pub(crate) fn run(self, os: &dyn Os) {
        let base = os.map(self.pages.max(LARGEST_FLUSH), Backing::AnonPrivate, Protection::ReadWrite);
        let mut rounds = Rounds::new(self.rounds);
        while let Some(round) = rounds.next(os) {
            let pages = self.size(round, os);
            if self.check_fresh != 0 && round.is_multiple_of(self.check_fresh) {
                read_zeros(os, base, pages);
            }
            write_stamps(os, base, pages, round);
            os.compute(self.user_cycles);
            os.dontneed(base, pages);
            os.count(1);
        }
    }

    fn size(self, round: u64, os: &dyn Os) -> u64 {
        match (self.pages, self.each) {
            (0, 0) => draw_flush_size(os.random()),
            (0, each) => FLUSH_SIZES[(round / each % FLUSH_SIZES.len() as u64) as usize].pages,
            (pages, _) => pages,
        }
    }
}
