//! Programs of this kernel's own, for what no workload notices, since none touches what it is giving back.
//!
//! The race: threads store to a page that another one gives back again and again, which is allowed, and a third one
//! takes whatever frames become free, for page tables too. If a frame is free before its last translation is gone,
//! a store of the first threads lands in a page of the third.
//!
//! The readers: processes that come back to windows of the kernel that have shown others something else meanwhile.

use tlbkit_workloads::os::{Backing, Os, Part, Protection, read_expecting};
use tlbkit_workloads::pattern::{PAGE_BYTES, stamp};
use tlbkit_workloads::{Task, Workload};

/// In the role of a task: it is a part of these programs, whose parameters are those of `madvise1`.
pub(super) const ROLE: u32 = 1 << 31;

const TAKER: u32 = ROLE | 1;
/// The parent of several races at a time.
const PARENT: u32 = ROLE | 1 << 30;
/// How often it starts new ones, and how many at a time.
const GENERATIONS: u32 = 4;
const AT_A_TIME: usize = 3;
/// The parent of the readers, and one of them.
const LIBRARY: u32 = ROLE | 1 << 29;
const READER: u32 = ROLE | 1 << 28;
/// Readers for each CPU.
const READERS: u32 = 3;
const WRITERS: u64 = 0x77;
const TAKERS: u64 = 0x7a;
const STOP: u64 = 1;
/// Pages of a mapping that has a page table to itself around its middle, wherever it lies.
const AREA_PAGES: u64 = 1024;
/// Turns of the taker between its store and its look.
const HOLD_CYCLES: u64 = 1000;

/// The first task of one race.
pub(crate) const fn first_task(workload: Workload) -> Task {
    Task { workload, part: Part::new(ROLE, 0) }
}

/// The first task of several processes that each race, on the same CPUs: between a flush and the return to its program
/// comes another one, and CPUs idle in spaces that end.
pub(crate) const fn parent(workload: Workload) -> Task {
    Task { workload, part: Part::new(PARENT, 0) }
}

/// The first task of processes that take turns on the same CPUs and read files, each its own, through the same windows.
pub(crate) const fn library(workload: Workload) -> Task {
    Task { workload, part: Part::new(LIBRARY, 0) }
}

pub(super) fn run(task: Task, os: &dyn Os) {
    match task.part.role {
        PARENT => start_races(os),
        LIBRARY => start_readers(os),
        READER => read_again_and_again(task, os),
        ROLE => drop_again_and_again(task, os),
        TAKER => take(RacePages(task.part.arg), os),
        _ => write(task.part.role & !ROLE, RacePages(task.part.arg), os),
    }
}

/// Two pages: the one that is fought for, and the one that says when to stop.
#[derive(Clone, Copy)]
struct RacePages(u64);

impl RacePages {
    const fn stop_page(self) -> u64 {
        self.0 + PAGE_BYTES
    }

    /// The page holds what a writer stored, or, given back, nothing.
    fn look(self, os: &dyn Os) {
        let found = os.read(self.0);
        if found != 0 && found != stamp(WRITERS, 0) {
            os.wrong_value(self.0, found, stamp(WRITERS, 0));
        }
    }

    fn is_over(self, os: &dyn Os) -> bool {
        os.read(self.stop_page()) == STOP
    }
}

fn start_races(os: &dyn Os) {
    for _ in 0..GENERATIONS {
        let races = [(); AT_A_TIME].map(|()| os.fork(Part::new(ROLE, 0)));
        races.into_iter().for_each(|race| os.join(race));
    }
}

fn start_readers(os: &dyn Os) {
    let count = (READERS * os.cpus()).min(64);
    let mut readers = [None; 64];
    for file in 0..count {
        readers[file as usize] = Some(os.fork(Part::new(READER, u64::from(file))));
    }
    readers.into_iter().flatten().for_each(|reader| os.join(reader));
}

fn read_again_and_again(task: Task, os: &dyn Os) {
    for _ in 0..rounds(task) {
        os.read_file(task.part.arg as u32, 1);
        os.yield_now();
    }
}

fn rounds(task: Task) -> u64 {
    task.workload.parameters().get("rounds").unwrap_or(0)
}

fn drop_again_and_again(task: Task, os: &dyn Os) {
    os.pin(0);
    let place = RacePages(os.map(2, Backing::AnonPrivate, Protection::ReadWrite));
    let start = |role: u32| os.thread(Part::new(ROLE | role, place.0));
    // All CPUs but this one; at least the taker and one writer.
    let last = os.cpus().clamp(3, 64);
    let mut threads = [None; 64];
    for role in 1..last {
        threads[role as usize] = Some(start(role));
    }
    for _ in 0..rounds(task) {
        os.dontneed(place.0, 1);
        place.look(os);
        os.compute(0);
        os.yield_now();
    }
    os.write(place.stop_page(), STOP);
    threads.into_iter().flatten().for_each(|thread| os.join(thread));
}

fn take(place: RacePages, os: &dyn Os) {
    os.pin(1);
    while !place.is_over(os) {
        let area = os.map(AREA_PAGES, Backing::AnonPrivate, Protection::ReadWrite);
        let page = area + AREA_PAGES / 2 * PAGE_BYTES;
        os.write(page, stamp(TAKERS, 0));
        os.compute(HOLD_CYCLES);
        read_expecting(os, page, stamp(TAKERS, 0));
        // So that the next flush frees the page's table, but names only a page under another one.
        os.write(area, stamp(TAKERS, 1));
        os.dontneed(page, 1);
        os.unmap(area, AREA_PAGES);
        os.yield_now();
    }
}

fn write(role: u32, place: RacePages, os: &dyn Os) {
    os.pin(role);
    while !place.is_over(os) {
        place.look(os);
        os.write(place.0, stamp(WRITERS, 0));
        os.compute(0);
        os.yield_now();
    }
}
