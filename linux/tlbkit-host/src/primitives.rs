//! Costs of single instructions and events that a user program can cause: system call, page fault, locked operation.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;

use serde::Serialize;

use crate::error::Result;
use crate::host::MeasuringPlace;
use crate::sample::{Effort, Sample, nanoseconds, try_nanoseconds};
use crate::sys::{self, Backing, Mapping, PAGE_WORDS};

/// Times that one operation is done in a repetition.
const OPERATIONS: usize = 2000;
/// Pages that are faulted in by one repetition.
const FAULTS: usize = 256;
/// Turns of two threads in a repetition.
const TURNS: u64 = 2000;

/// Nanoseconds of one each.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Primitives {
    /// A system call that does nothing.
    pub syscall: Sample,
    /// A fault that maps the page of zeros.
    pub read_fault: Sample,
    /// A fault that takes a new page and zeroes it.
    pub write_fault: Sample,
    /// A fault for one page alone: the kernel's code and tables have left the caches since the fault before.
    pub lone_fault: Sample,
    /// A fault that takes 2 MiB at once; none where the kernel gives none.
    pub huge_fault: Option<Sample>,
    /// Marking a page by MADV_FREE, a page of many, without its flush.
    pub lazy_free_page: Sample,
    /// The next store to a page that was marked so, less a store to one that was not.
    pub lazy_free_store: Sample,
    /// Copying a page that is in a near cache.
    pub copy_page: Sample,
    /// A locked addition to a line that this CPU has.
    pub locked_op: Sample,
    /// A full fence with an empty store buffer.
    pub full_fence: Sample,
    /// PAUSE.
    pub pause: Sample,
    /// A line that another CPU wrote last; none on one CPU.
    pub line_transfer: Option<Sample>,
}

impl Primitives {
    /// Measures them on the CPU of `place`, and with its partner.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    pub fn measure(effort: Effort, place: &MeasuringPlace) -> Result<Self> {
        let repetitions = effort.many_repetitions();
        let repeated = |operation: &mut dyn FnMut()| {
            Sample::collect(repetitions, || {
                nanoseconds(|| (0..OPERATIONS).for_each(|_| operation())) / OPERATIONS as f64
            })
        };
        let (lazy_free_page, lazy_free_store) = lazy_free(effort)?;
        let counter = AtomicU64::new(0);
        let (source, mut target) = ([1_u8; sys::PAGE_BYTES], [0_u8; sys::PAGE_BYTES]);
        Ok(Self {
            syscall: repeated(&mut || _ = black_box(rustix::process::getppid())),
            read_fault: faults(FAULTS, repetitions, |words, at| _ = black_box(words[at]))?,
            write_fault: faults(FAULTS, repetitions, |words, at| words[at] = 1)?,
            lone_fault: faults(1, repetitions, |words, at| words[at] = 1)?,
            huge_fault: huge_faults(effort)?,
            lazy_free_page,
            lazy_free_store,
            copy_page: repeated(&mut || black_box(&mut target).copy_from_slice(black_box(&source))),
            // Partner: none; the cost of the locked instruction is the point.
            locked_op: repeated(&mut || _ = counter.fetch_add(1, Ordering::Relaxed)),
            // Partner: none; the cost of the fence is the point.
            full_fence: repeated(&mut || fence(Ordering::SeqCst)),
            pause: repeated(&mut || spin_loop()),
            line_transfer: place.partner.map(|partner| line_transfer(effort, partner)),
        })
    }
}

fn faults(pages: usize, repetitions: usize, access: impl Fn(&mut [usize], usize)) -> Result<Sample> {
    let mut mapping = Mapping::new(pages, Backing::Small)?;
    let mut times = Vec::new();
    for _ in 0..repetitions {
        mapping.discard(0..pages)?;
        let words = mapping.words();
        let all = nanoseconds(|| (0..pages).for_each(|page| access(words, page * PAGE_WORDS)));
        times.push(all / pages as f64);
    }
    Ok(Sample::of(times))
}

/// Each region is touched once, and its other pages after that: it came at once if they need no further fault.
fn huge_faults(effort: Effort) -> Result<Option<Sample>> {
    const REGIONS: usize = 8;
    const REGION: usize = sys::LARGE_BYTES / sys::PAGE_BYTES;
    let Ok(mut mapping) = Mapping::new(REGIONS * REGION, Backing::Large) else { return Ok(None) };
    let mut times = Vec::new();
    for _ in 0..effort.repetitions() {
        mapping.discard(0..REGIONS * REGION)?;
        for region in 0..REGIONS {
            let first = region * REGION;
            let fault = nanoseconds(|| mapping.touch(first..first + 1));
            let faults_before = sys::faults_of_this_thread();
            mapping.touch(first + 1..first + REGION);
            times.extend((sys::faults_of_this_thread() == faults_before).then_some(fault));
        }
    }
    // Memory may be in pieces: then most come page by page, and the few others say little.
    let is_usual = times.len() * 2 > effort.repetitions() * REGIONS;
    Ok(is_usual.then(|| Sample::of(times)))
}

/// A page marked, and the next store to it: from few pages, which caches and TLB hold, to many, which they do not.
fn lazy_free(effort: Effort) -> Result<(Sample, Sample)> {
    let [few, many] = [512, 8192].map(|pages| lazily(pages, effort));
    let (few, many) = (few?, many?);
    let join = |few: Sample, many: Sample| Sample {
        low: few.low.min(many.low),
        median: f64::midpoint(few.median, many.median),
        high: few.high.max(many.high),
        repetitions: few.repetitions,
    };
    Ok((join(few.0, many.0), join(few.1, many.1)))
}

/// Marking and writing `pages` pages at once. A call that does nothing costs little in comparison.
fn lazily(pages: usize, effort: Effort) -> Result<(Sample, Sample)> {
    let mut mapping = Mapping::new(pages, Backing::Small)?;
    mapping.touch(0..pages);
    let (mut calls, mut marked, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let each = |all: f64| all / pages as f64;
    for _ in 0..effort.repetitions() {
        calls.push(each(try_nanoseconds(|| mapping.free_lazily(0..pages))?));
        marked.push(each(nanoseconds(|| mapping.touch(0..pages))));
        plain.push(each(nanoseconds(|| mapping.touch(0..pages))));
    }
    Ok((Sample::of(calls), Sample::of(marked).minus(&Sample::of(plain))))
}

/// Two threads write one line in turn: a turn has one transfer each way.
fn line_transfer(effort: Effort, partner: usize) -> Sample {
    let turn = AtomicU64::new(0);
    let last = TURNS * (effort.repetitions() as u64 + 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Unpinned it may share this CPU, which shows as a very long time.
            let _ = sys::pin(partner);
            (0..last).for_each(|at| pass(&turn, 2 * at + 1));
        });
        let mut at = 0;
        Sample::collect(effort.repetitions(), || {
            let time = nanoseconds(|| (at..at + TURNS).for_each(|at| pass(&turn, 2 * at)));
            at += TURNS;
            time / (2 * TURNS) as f64
        })
    })
}

/// Waits for the turn `mine` and gives the next one away.
fn pass(turn: &AtomicU64, mine: u64) {
    // Partner: the Release store below, on the other thread.
    while turn.load(Ordering::Acquire) != mine {
        spin_loop();
    }
    // Partner: the Acquire load above, on the other thread.
    turn.store(mine + 1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    /// What a few allocations of the measuring code itself may add to the faults that it causes on purpose.
    const OTHER_FAULTS: u64 = 16;

    fn faults_of(work: impl FnOnce()) -> u64 {
        let before = sys::faults_of_this_thread();
        work();
        sys::faults_of_this_thread() - before
    }

    fn at_least(faults: u64) -> RangeInclusive<u64> {
        faults..=faults + OTHER_FAULTS
    }

    #[test]
    fn each_access_that_is_timed_as_a_fault_is_one() {
        let write = faults_of(|| _ = faults(64, 20, |words, at| words[at] = 1).unwrap());
        assert!(at_least(64 * 20).contains(&write), "{write}");
        let read = faults_of(|| _ = faults(64, 20, |words, at| _ = black_box(words[at])).unwrap());
        assert!(at_least(64 * 20).contains(&read), "{read}");
        let lone = faults_of(|| _ = faults(1, 200, |words, at| words[at] = 1).unwrap());
        assert!(at_least(200).contains(&lone), "{lone}");
    }

    #[test]
    fn a_store_to_a_marked_page_is_no_fault() {
        let all = faults_of(|| _ = lazily(512, Effort::Quick).unwrap());
        // The first touch of each is. The rest is room for a kernel that is short of memory and takes some at once.
        assert!((512..2 * 512).contains(&all), "{all}");
    }

    #[test]
    fn all_is_measured_that_this_machine_has() {
        let place = MeasuringPlace::choose().unwrap();
        let costs = Primitives::measure(Effort::Quick, &place).unwrap();
        let Primitives { syscall, read_fault, write_fault, lone_fault, copy_page, locked_op, .. } = costs;
        for cost in [syscall, read_fault, write_fault, lone_fault, copy_page, locked_op] {
            assert!(cost.low > 0.0 && cost.high.is_finite(), "{costs:?}");
        }
        assert_eq!(costs.line_transfer.is_some(), place.partner.is_some());
    }
}
