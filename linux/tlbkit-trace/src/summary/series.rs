//! Counts flushes over time, in a bounded number of equal intervals, whose length doubles as the trace grows.

use crate::event::FlushReason;

/// The most intervals. When they are used up, each two neighbours become one, so a long trace uses at least half as
/// many.
const MAX_BUCKETS: usize = 1024;
/// The length of an interval at first, in nanoseconds.
const FIRST_WIDTH_NS: u64 = 1_000_000;

/// How many flushes of each reason an interval has, in the order of [`FlushReason::ALL`].
pub type Bucket = [u64; FlushReason::ALL.len()];

/// The number of flushes over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    start_ns: Option<u64>,
    width_ns: u64,
    buckets: Vec<Bucket>,
}

impl Default for Series {
    fn default() -> Self {
        Self { start_ns: None, width_ns: FIRST_WIDTH_NS, buckets: Vec::new() }
    }
}

impl Series {
    pub(super) fn count(&mut self, time_ns: u64, reason: FlushReason) {
        // An event out of order from before the first flush goes to the first interval.
        let since_ns = time_ns.saturating_sub(*self.start_ns.get_or_insert(time_ns));
        while since_ns / self.width_ns >= MAX_BUCKETS as u64 {
            self.double();
        }
        let index = (since_ns / self.width_ns) as usize;
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, Bucket::default());
        }
        self.buckets[index][reason as usize] += 1;
    }

    fn double(&mut self) {
        self.width_ns *= 2;
        let pairs = self.buckets.chunks(2);
        self.buckets = pairs.map(|pair| std::array::from_fn(|i| pair.iter().map(|bucket| bucket[i]).sum())).collect();
    }

    /// The time of the first flush, in nanoseconds of the recording's clock, where the first interval begins. None if
    /// there was no flush.
    #[must_use]
    pub fn start_ns(&self) -> Option<u64> {
        self.start_ns
    }

    /// The length of an interval, in nanoseconds.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// The intervals in order of time.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_keeps_every_flush_and_its_order() {
        let mut series = Series::default();
        for i in 0..10_000u64 {
            series.count(5_000 + i * FIRST_WIDTH_NS, FlushReason::LocalMmShootdown);
        }
        assert_eq!((series.start_ns(), series.width_ns()), (Some(5_000), 16 * FIRST_WIDTH_NS));
        assert!(series.buckets().iter().all(|bucket| bucket[3] == 16));
        assert_eq!(series.buckets().len(), 625);
    }

    #[test]
    fn the_end_of_time_is_no_trouble() {
        let mut series = Series::default();
        series.count(0, FlushReason::TaskSwitch);
        series.count(u64::MAX, FlushReason::TaskSwitch);
        assert!(series.buckets().len() <= MAX_BUCKETS);
    }
}
