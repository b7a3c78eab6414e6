//! Sizes of the TLB arrays and costs of misses, from the time of loads that each use another page.
//!
//! A chase goes round a random ring of cells, each load waiting for the one before. The same number of cells in
//! adjacent lines costs the same in the data caches and nothing in the TLB, so the difference is translation. It has a
//! step where the first level is full, and one where the second is.

use serde::Serialize;
use tlbkit_arch::SplitMix64;

use crate::error::Result;
use crate::sample::{Effort, Sample, nanoseconds};
use crate::sys::{Backing, LARGE_BYTES, Mapping, PAGE_BYTES, PAGE_WORDS};

/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Words of a large page.
const LARGE_WORDS: usize = LARGE_BYTES / size_of::<usize>();
/// Sizes that first levels have.
const L1_SIZES: &[usize] = &[16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128];
/// Numbers of pages that miss every first level and hit every second one.
const STLB_PAGES: &[usize] = &[192, 256, 384];
/// Sizes that second levels have.
const STLB_SIZES: &[usize] = &[512, 768, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096];
/// A number of pages that misses every second level, with page tables that stay in near caches.
const WARM_PAGES: usize = 6144;
/// One with page tables that do not.
const COLD_PAGES: usize = 65_536;
/// Distances of a whole large page; few, as each takes 2 MiB.
const LARGE_STRIDES: &[usize] = &[16, 32, 64, 128];
/// Pages that the stack and the code of the chase take of the array under test.
const OWN_PAGES: usize = 2;
/// A part of the way from kept to missed beyond which a size does not fit: small, as page walks themselves grow dearer
/// with the number of pages.
const MISSED_SHARE: f64 = 0.3;
/// Loads of one repetition at least, so that the clock costs nothing.
const LOADS: usize = 20_000;

/// One number of pages and what a load costs then, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CurvePoint {
    /// Pages; that of the array size that is tested.
    pub pages: usize,
    /// Base pages, one load each.
    pub small: Sample,
    /// Loads from the same layout on large pages; none if the kernel gave no large pages.
    pub large: Option<Sample>,
    /// Loads from as many lines side by side.
    pub dense: Sample,
}

impl CurvePoint {
    /// What translation costs.
    #[must_use]
    pub fn excess(&self) -> Sample {
        self.small.minus(&self.dense)
    }

    /// The value by the fastest tenths of the samples: a disturbance can only add time.
    fn least(&self, sample: Sample) -> f64 {
        sample.low - self.dense.low
    }
}

/// What was found out about translation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Translation {
    /// By number of pages.
    pub curve: Vec<CurvePoint>,
    /// Loads a large page apart, by number of large pages.
    pub large_strides: Vec<(usize, Sample)>,
    /// Entries of the first level; none if no step was seen.
    pub l1_entries: Option<usize>,
    /// Entries of the second level; none if no step was seen.
    pub stlb_entries: Option<usize>,
    /// A first-level miss that hits the second, in a chain.
    pub stlb_hit: Sample,
    /// A page walk with near page tables, in a chain, beyond a first-level hit.
    pub walk_warm: Sample,
    /// A page walk with far page tables.
    pub walk_cold: Sample,
    /// A second-level hit where loads do not wait for each other.
    pub stlb_hit_overlapped: Sample,
    /// A near walk where loads do not wait for each other.
    pub walk_overlapped: Sample,
}

impl Translation {
    /// Measures it.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    pub fn measure(effort: Effort) -> Result<Self> {
        let mut lab = Lab::new(effort)?;
        let sizes = [L1_SIZES, STLB_PAGES, STLB_SIZES, &[WARM_PAGES, COLD_PAGES]].concat();
        let curve: Vec<CurvePoint> = sizes.into_iter().map(|pages| lab.point(pages)).collect();
        let excess = |pages| excess_at(&curve, pages);
        let (stlb_hit, walk_warm) = (excess(STLB_PAGES[1]), excess(WARM_PAGES));
        let (stlb_hit_overlapped, walk_overlapped) = (lab.touched(STLB_PAGES[1]), lab.touched(WARM_PAGES));
        Ok(Self {
            l1_entries: entries(&curve, L1_SIZES, STLB_PAGES[1]),
            stlb_entries: entries(&curve, STLB_SIZES, WARM_PAGES),
            stlb_hit,
            walk_warm,
            walk_cold: excess(COLD_PAGES),
            stlb_hit_overlapped,
            walk_overlapped,
            large_strides: if lab.large.is_some() { large_strides(effort)? } else { Vec::new() },
            curve,
        })
    }
}

fn excess_at(curve: &[CurvePoint], pages: usize) -> Sample {
    curve.iter().find(|point| point.pages == pages).expect("every size was measured").excess()
}

/// Entries of the array that one of `sizes` fills, where `beyond` pages miss it all.
///
/// A large page that the CPU holds in pieces, as it does where the host below has small ones, fills the array like
/// small pages do, and its cheaper walks disturb the array less: of two steps the later one is the array's.
fn entries(curve: &[CurvePoint], sizes: &[usize], beyond: usize) -> Option<usize> {
    let small = last_clean(curve, sizes, beyond, |point| Some(point.least(point.small)));
    small.max(last_clean(curve, sizes, beyond, |point| Some(point.least(point.large?))))
}

/// The last of `sizes` that costs hardly more than the first of them, compared with `beyond`; none without a step.
fn last_clean(
    curve: &[CurvePoint],
    sizes: &[usize],
    beyond: usize,
    cost: fn(&CurvePoint) -> Option<f64>,
) -> Option<usize> {
    let cost_at = |pages| curve.iter().find(|point| point.pages == pages).and_then(cost);
    let (kept, missed) = (cost_at(sizes[0])?, cost_at(beyond)?);
    let limit = kept + MISSED_SHARE * (missed - kept);
    let is_clean = |&&size: &&usize| cost_at(size).is_some_and(|cost| cost < limit);
    let clean = sizes.iter().take_while(is_clean).count();
    // Less than half a nanosecond is no step of a TLB.
    (missed > kept + 0.5 && clean > 0 && clean < sizes.len()).then(|| sizes[clean - 1])
}

/// Memory to chase through.
struct Lab {
    effort: Effort,
    small: Mapping,
    /// None if the kernel gave no large pages.
    large: Option<Mapping>,
    random: SplitMix64,
}

impl Lab {
    fn new(effort: Effort) -> Result<Self> {
        let mut small = Mapping::new(COLD_PAGES, Backing::Small)?;
        small.touch(0..COLD_PAGES);
        let large = large_pages(COLD_PAGES)?;
        Ok(Self { effort, small, large, random: SplitMix64::new(0) })
    }

    fn point(&mut self, pages: usize) -> CurvePoint {
        let cells = pages - OWN_PAGES;
        let repetitions = self.effort.repetitions();
        let Self { small, large, random, .. } = self;
        let mut chase = |mapping: &mut Mapping, stride| {
            Sample::collect(repetitions, || chase(mapping.words(), stride, cells, random))
        };
        CurvePoint {
            pages,
            small: chase(small, PAGE_WORDS),
            large: large.as_mut().map(|large| chase(large, PAGE_WORDS)),
            dense: chase(small, LINE_WORDS),
        }
    }

    /// What translation costs where loads overlap.
    fn touched(&mut self, pages: usize) -> Sample {
        let words = self.small.words();
        let touch = |stride| Sample::collect(self.effort.repetitions(), || touch(words, stride, pages));
        touch(PAGE_WORDS).minus(&touch(LINE_WORDS))
    }
}

/// Large pages, if the kernel really backs the memory with them, which other memory of this process may have as well.
fn large_pages(pages: usize) -> Result<Option<Mapping>> {
    let mut mapping = Mapping::new(pages, Backing::Large)?;
    let before = anonymous_large_kib();
    mapping.touch(0..pages);
    let backed = anonymous_large_kib().saturating_sub(before);
    Ok((backed >= pages * PAGE_BYTES / 1024).then_some(mapping))
}

/// KiB of this process that large pages back.
fn anonymous_large_kib() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn large_strides(effort: Effort) -> Result<Vec<(usize, Sample)>> {
    let most = LARGE_STRIDES.iter().copied().max().unwrap_or(0);
    let Some(mut mapping) = large_pages(most * LARGE_BYTES / PAGE_BYTES)? else { return Ok(Vec::new()) };
    let mut random = SplitMix64::new(1);
    let mut chased =
        |count| Sample::collect(effort.repetitions(), || chase(mapping.words(), LARGE_WORDS, count, &mut random));
    Ok(LARGE_STRIDES.iter().map(|&count| (count, chased(count))).collect())
}

/// The word of a cell: a line further in each step, so that the cells spread over the sets of the data caches.
fn place(cell: usize, stride_words: usize) -> usize {
    cell * stride_words + (cell * LINE_WORDS) % stride_words
}

/// Nanoseconds a load of a chase through `cells` cells in a new random order.
fn chase(words: &mut [usize], stride_words: usize, cells: usize, random: &mut SplitMix64) -> f64 {
    let order = shuffled(cells, random);
    for (&from, &to) in order.iter().zip(order.iter().cycle().skip(1)) {
        words[place(from, stride_words)] = place(to, stride_words);
    }
    let start = follow(words, place(order[0], stride_words), cells);
    let loads = cells.max(LOADS);
    nanoseconds(|| _ = follow(words, start, loads)) / loads as f64
}

#[inline(never)]
fn follow(words: &[usize], start: usize, loads: usize) -> usize {
    std::hint::black_box((0..loads).fold(start, |at, _| words[at]))
}

/// Nanoseconds a load through `cells` cells in order, none waiting for another.
fn touch(words: &[usize], stride_words: usize, cells: usize) -> f64 {
    let rounds = LOADS.div_ceil(cells);
    let round = || (0..cells).fold(0_usize, |sum, cell| sum.wrapping_add(words[place(cell, stride_words)]));
    std::hint::black_box(round());
    nanoseconds(|| (0..rounds).for_each(|_| _ = std::hint::black_box(round()))) / (rounds * cells) as f64
}

/// All numbers below `count` in random order, so that no prefetcher guesses which comes next.
fn shuffled(count: usize, random: &mut SplitMix64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(pages: usize, excess: f64) -> CurvePoint {
        let of = |value| Sample { low: value, median: value, high: value, repetitions: 1 };
        CurvePoint { pages, small: of(1.0 + excess), large: None, dense: of(1.0) }
    }

    #[test]
    fn an_array_ends_before_the_first_size_that_misses() {
        let sizes = [L1_SIZES, STLB_PAGES].concat();
        let curve = |last, missed| -> Vec<_> {
            sizes.iter().map(|&size| flat(size, if size <= last { 0.1 } else { missed })).collect()
        };
        assert_eq!(entries(&curve(64, 2.0), L1_SIZES, STLB_PAGES[1]), Some(64));
        assert_eq!(entries(&curve(64, 0.2), L1_SIZES, STLB_PAGES[1]), None, "no step is no size");
        assert_eq!(entries(&curve(128, 2.0), L1_SIZES, STLB_PAGES[1]), None, "nor is one beyond all sizes");
    }

    #[test]
    fn the_later_of_two_steps_counts() {
        let sizes = [STLB_SIZES, &[WARM_PAGES]].concat();
        let mut curve: Vec<_> = sizes.iter().map(|&size| flat(size, if size <= 1536 { 2.0 } else { 50.0 })).collect();
        for point in &mut curve {
            let cost = 1.0 + if point.pages <= 2048 { 2.0 } else { 20.0 };
            point.large = Some(Sample { low: cost, median: cost, high: cost, repetitions: 1 });
        }
        assert_eq!(entries(&curve, STLB_SIZES, WARM_PAGES), Some(2048));
        curve.iter_mut().for_each(|point| point.large = Some(point.dense));
        assert_eq!(entries(&curve, STLB_SIZES, WARM_PAGES), Some(1536), "large pages without a step say nothing");
    }

    #[test]
    fn a_chase_visits_every_cell_once_a_round() {
        let (cells, stride) = (100, PAGE_WORDS);
        let mut words = vec![usize::MAX; cells * stride];
        chase(&mut words, stride, cells, &mut SplitMix64::new(7));
        let mut at = place(0, stride);
        let visited: std::collections::BTreeSet<_> = (0..cells)
            .map(|_| {
                at = words[at];
                at
            })
            .collect();
        assert_eq!(visited.len(), cells);
        assert_ne!(
            shuffled(cells, &mut SplitMix64::new(7)),
            (0..cells).collect::<Vec<_>>(),
            "a prefetcher would follow that"
        );
        assert_eq!(at, place(0, stride), "the ring closes");
    }

    #[test]
    fn cells_stand_in_pages_of_their_own_and_spread_over_lines() {
        let pages: Vec<_> = (0..100).map(|cell| place(cell, PAGE_WORDS) / PAGE_WORDS).collect();
        assert_eq!(pages, (0..100).collect::<Vec<_>>());
        assert_ne!(place(0, PAGE_WORDS) % PAGE_WORDS, place(1, PAGE_WORDS) % PAGE_WORDS);
    }
}
