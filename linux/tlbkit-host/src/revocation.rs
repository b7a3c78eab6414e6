//! What it costs to take pages away, by number of pages, system call and company; and where the kernel's ceiling is.

use serde::Serialize;

use crate::error::Result;
use crate::host::MeasuringPlace;
use crate::line_fit::{CostStep, more_growth, step};
use crate::partner::{Company, Partner};
use crate::sample::{Effort, Sample, try_nanoseconds};
use crate::sys::{Backing, Mapping};

/// A system call that revokes translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// `munmap`: frees frames, and tables where a range was their last.
    Munmap,
    /// `madvise(MADV_DONTNEED)`: frees frames.
    Madvise,
    /// `mprotect` to read-only: frees nothing, so most of its cost is the flush.
    Mprotect,
}

/// All of them.
pub const CALLS: [Call; 3] = [Call::Munmap, Call::Madvise, Call::Mprotect];
const COMPANIES: [Company; 3] = [Company::Alone, Company::Asleep, Company::Spinning];
/// Sizes that are shown.
const PAGES: [usize; 10] = [1, 2, 4, 8, 16, 32, 33, 34, 64, 512];
/// Up to here every number of pages is tried to find the ceiling; Linux has 33.
const CEILING_PAGES: usize = 80;

/// One call on one number of pages, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RevocationCost {
    /// The call.
    pub call: Call,
    /// Pages, all of them present.
    pub pages: usize,
    /// No other thread.
    pub alone: Sample,
    /// Another thread that sleeps; none on one CPU.
    pub asleep: Option<Sample>,
    /// Another thread that runs; none on one CPU.
    pub spinning: Option<Sample>,
}

/// What was found out about revocation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Revocation {
    /// By call and pages.
    pub rows: Vec<RevocationCost>,
    /// Where `mprotect` stops to grow page by page; none if no step was seen.
    pub ceiling: Option<CostStep>,
    /// Nanoseconds by which a page makes it grow more up to there than beyond: the least and the most that the fast,
    /// the middle and the slow repetitions say.
    pub page_by_page: Option<[f64; 2]>,
}

impl Revocation {
    /// Measures it.
    ///
    /// # Errors
    /// If the kernel refuses a call.
    pub fn measure(effort: Effort, place: &MeasuringPlace) -> Result<Self> {
        let mut columns = Vec::new();
        for company in COMPANIES {
            columns.push(column(effort, place, company)?);
        }
        let cases = CALLS.into_iter().flat_map(|call| PAGES.map(|pages| (call, pages)));
        let rows = cases.enumerate().filter_map(|(at, (call, pages))| {
            let of = |company: usize| columns[company].as_ref().map(|column: &Vec<Sample>| column[at]);
            of(0).map(|alone| RevocationCost { call, pages, alone, asleep: of(1), spinning: of(2) })
        });
        let (ceiling, page_by_page) = ceiling(effort)?;
        Ok(Self { rows: rows.collect(), ceiling, page_by_page })
    }

    /// The row of a call and a number of pages.
    #[must_use]
    pub fn row(&self, call: Call, pages: usize) -> Option<&RevocationCost> {
        self.rows.iter().find(|row| (row.call, row.pages) == (call, pages))
    }

    /// What a page adds to a call that takes many, and so flushes everything: unmapping and freeing it.
    #[must_use]
    pub fn per_page(&self, call: Call) -> Option<Sample> {
        const FEW: usize = 64;
        const MANY: usize = 512;
        let (many, few) = (self.row(call, MANY)?, self.row(call, FEW)?);
        Some(many.alone.minus(&few.alone).times(1.0 / (MANY - FEW) as f64))
    }

    /// What a running thread on another CPU adds to the flush of one page: the interrupt there and the answer.
    #[must_use]
    pub fn remote(&self) -> Option<Sample> {
        let row = self.row(Call::Madvise, 1)?;
        Some(row.spinning?.minus(&row.alone))
    }
}

/// All cases in one company, in the order of calls and pages; none if there cannot be such company.
fn column(effort: Effort, place: &MeasuringPlace, company: Company) -> Result<Option<Vec<Sample>>> {
    let Some(partner) = Partner::start(company, place) else { return Ok(None) };
    let mut column = Vec::new();
    for call in CALLS {
        for pages in PAGES {
            column.push(sample(effort.many_repetitions(), call, pages, &partner)?);
        }
    }
    Ok(Some(column))
}

fn sample(repetitions: usize, call: Call, pages: usize, partner: &Partner) -> Result<Sample> {
    let once = || {
        let mut mapping = Mapping::new(pages, Backing::Small)?;
        mapping.touch(0..pages);
        partner.settle();
        match call {
            Call::Munmap => try_nanoseconds(|| mapping.unmap()),
            Call::Madvise => try_nanoseconds(|| mapping.discard(0..pages)),
            Call::Mprotect => protect(&mut mapping),
        }
    };
    once()?;
    Ok(Sample::of((0..repetitions).map(|_| once()).collect::<Result<_>>()?))
}

/// The time of taking the right to write away, without that of giving it back.
fn protect(mapping: &mut Mapping) -> Result<f64> {
    let pages = mapping.pages();
    let mut guard = None;
    let nanoseconds = try_nanoseconds(|| mapping.protect(0..pages).map(|protected| guard = Some(protected)))?;
    drop(guard);
    Ok(nanoseconds)
}

/// Where the ceiling is, and what pages cost more before it.
type Ceiling = (Option<CostStep>, Option<[f64; 2]>);

fn ceiling(effort: Effort) -> Result<Ceiling> {
    let place = MeasuringPlace { allowed: Vec::new(), cpu: 0, partner: None };
    let Some(nobody) = Partner::start(Company::Alone, &place) else { return Ok((None, None)) };
    let mut samples = Vec::new();
    for pages in 1..=CEILING_PAGES {
        samples.push((pages as f64, sample(effort.many_repetitions(), Call::Mprotect, pages, &nobody)?));
    }
    let points =
        |of: fn(&Sample) -> f64| samples.iter().map(|(pages, sample)| (*pages, of(sample))).collect::<Vec<_>>();
    // The fastest tenth: what disturbs only ever adds.
    let Some(found) = step(&points(|sample| sample.low)) else { return Ok((None, None)) };
    let ways: [fn(&Sample) -> f64; 3] = [|sample| sample.low, |sample| sample.median, |sample| sample.high];
    let growths = ways.into_iter().filter_map(|of| more_growth(&points(of), found.last));
    let range = growths.fold([f64::MAX, 0.0_f64], |[least, most], growth| [least.min(growth), most.max(growth)]);
    Ok((Some(found), Some(range.map(|growth| growth.max(0.0)))))
}
