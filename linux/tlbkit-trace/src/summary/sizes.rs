//! The histogram of flush sizes, with the columns that document 003 of docs/lab/sources.md prints.

use crate::event::FlushSize;
use std::collections::BTreeMap;

/// The largest size that has its own row, in pages. Larger flushes share that row. No kernel flushes so many pages one
/// by one.
const MAX_PAGES: u64 = 1 << 12;

/// The flushes for one reason, by size.
#[derive(Clone, Default, Debug)]
pub struct Sizes {
    cells: BTreeMap<FlushSize, SizeTotal>,
    samples: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct SizeTotal {
    samples: u64,
    timed: u64,
    total_ns: u64,
    min_ns: u64,
}

/// One row of the histogram, from which the columns `size`, `percent`, `cumulative`, `avg cycles`, `cycles/page` and
/// `samples` are printed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SizeRow {
    /// The size of the flushes of this row.
    pub size: FlushSize,
    /// How many flushes had this size.
    pub samples: u64,
    /// Their part of all flushes, in percent.
    pub percent: f64,
    /// The part that they and those of the rows above have, in percent.
    pub cumulative_percent: f64,
    /// For how many of them the time is known.
    pub timed: u64,
    /// The mean of the known times, in nanoseconds. None if no time is known.
    pub mean_ns: Option<f64>,
    /// The shortest of the known times, in nanoseconds.
    pub min_ns: Option<u64>,
}

impl SizeRow {
    /// The mean of the known times, in cycles of a clock of `mhz` megahertz. None if no time is known.
    #[must_use]
    pub fn mean_cycles(&self, mhz: f64) -> Option<f64> {
        self.mean_ns.map(|ns| ns * mhz / 1000.0)
    }

    /// The mean time for each page, in cycles of a clock of `mhz` megahertz. None if no time is known, and for flushes
    /// of everything or of no page.
    #[must_use]
    pub fn cycles_per_page(&self, mhz: f64) -> Option<f64> {
        match self.size {
            FlushSize::Pages(pages) if pages > 0 => self.mean_cycles(mhz).map(|cycles| cycles / pages as f64),
            _ => None,
        }
    }
}

impl Sizes {
    pub(super) fn count(&mut self, size: FlushSize) {
        self.samples += 1;
        self.cell(size).samples += 1;
    }

    pub(super) fn time(&mut self, size: FlushSize, took_ns: u64) {
        let cell = self.cell(size);
        cell.min_ns = if cell.timed == 0 { took_ns } else { cell.min_ns.min(took_ns) };
        cell.timed += 1;
        cell.total_ns = cell.total_ns.saturating_add(took_ns);
    }

    fn cell(&mut self, size: FlushSize) -> &mut SizeTotal {
        let size = if let FlushSize::Pages(pages) = size { FlushSize::Pages(pages.min(MAX_PAGES)) } else { size };
        self.cells.entry(size).or_default()
    }

    /// How many flushes there were of all sizes.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How many flushes had exactly this size.
    #[must_use]
    pub fn of(&self, size: FlushSize) -> u64 {
        self.cells.get(&size).map_or(0, |cell| cell.samples)
    }

    /// The rows of the histogram, the smallest size first and flushes of everything last.
    #[must_use]
    pub fn rows(&self) -> Vec<SizeRow> {
        let mut above = 0;
        let percent = |samples: u64| 100.0 * samples as f64 / self.samples.max(1) as f64;
        let row = |(&size, cell): (&FlushSize, &SizeTotal)| {
            above += cell.samples;
            let is_timed = cell.timed > 0;
            SizeRow {
                size,
                samples: cell.samples,
                percent: percent(cell.samples),
                cumulative_percent: percent(above),
                timed: cell.timed,
                mean_ns: is_timed.then(|| cell.total_ns as f64 / cell.timed as f64),
                min_ns: is_timed.then_some(cell.min_ns),
            }
        };
        self.cells.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_times_are_of_the_timed_only() {
        let mut sizes = Sizes::default();
        for size in [FlushSize::All, FlushSize::Pages(2), FlushSize::Pages(2), FlushSize::Pages(1)] {
            sizes.count(size);
        }
        sizes.time(FlushSize::Pages(2), 300);
        sizes.time(FlushSize::Pages(2), 500);
        let rows = sizes.rows();
        assert_eq!(rows.iter().map(|row| row.cumulative_percent).collect::<Vec<_>>(), [25.0, 75.0, 100.0]);
        assert_eq!((rows[1].mean_ns, rows[1].min_ns), (Some(400.0), Some(300)));
        assert_eq!(rows[1].cycles_per_page(2000.0), Some(400.0));
        assert_eq!((rows[2].size, rows[2].mean_ns), (FlushSize::All, None));
    }

    #[test]
    fn absurd_sizes_do_not_make_rows_without_end() {
        let mut sizes = Sizes::default();
        (0..100_000).for_each(|pages| sizes.count(FlushSize::Pages(pages)));
        assert_eq!(sizes.rows().len() as u64, MAX_PAGES + 1);
        assert_eq!(sizes.samples(), 100_000);
    }
}
