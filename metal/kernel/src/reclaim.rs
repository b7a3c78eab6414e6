//! Reclaim of the pages of files, where a program has been given less memory than its files take: as the simulated
//! kernel does it, but that one batch is flushed after the other, since who has answered the first has passed the rest.
//!
//! A fault that finds no free page reclaims the pages that were read first, in batches. Under [`Reclaim::AtReuse`]
//! faults reclaim ahead and leave batches unflushed, until one of their frames is needed. Freed frames are filled, so a
//! program that still reads one by an old translation finds a wrong value.
//!
//! One lock holds up the faults of all CPUs meanwhile, so nobody maps a page that is being dropped. Its holder may wait
//! for other CPUs, which wait for it with interrupts on.

use core::sync::atomic::{AtomicBool, Ordering};

use heapless::{Deque, Vec};
use spin::Mutex;
use tlbkit::{Deferred, PAGE_BYTES, Reason, Reclaim};
use tlbkit_pmap::{CleanEviction, Eviction, Frame, Memory};
use tlbkit_workloads::pattern::MAPPED_FILE;

use crate::counters::{self, Counter};
use crate::machine::{self, protocol};
use crate::memory::{self, Ram};
use crate::process_table::Process;
use crate::report;

/// Most pages of the file in memory at a time.
const MOST_PAGES: usize = 4096;
/// Most pages of a batch, and twice as many references: the mapping's, and that of the files themselves.
const MOST_IN_BATCH: usize = 64;
const MOST_HELD_BATCHES: usize = 32;

/// True once there is a limit.
static IS_LIMITED: AtomicBool = AtomicBool::new(false);

static RECLAIMER: Mutex<Reclaimer> = Mutex::new(Reclaimer {
    limit: 0,
    batch: 0,
    most_held: 0,
    used: 0,
    order: Deque::new(),
    mapping: None,
    held: Deque::new(),
});

/// A batch that was not flushed, and the pages that come free with it.
type HeldBatch = (Deferred<Vec<Frame, { 2 * MOST_IN_BATCH }>>, u64);

/// What of the file is in memory.
struct Reclaimer {
    /// Pages that fit.
    limit: u64,
    /// Pages that one flush covers.
    batch: u64,
    /// Pages that may wait for theirs.
    most_held: u64,
    /// Pages that are in memory, or held.
    used: u64,
    /// Those in memory, by their numbers in the file, the one that was read first at the front.
    order: Deque<u64, MOST_PAGES>,
    /// Who maps the file, the first address, and how many pages.
    mapping: Option<(&'static Process, u64, u64)>,
    held: Deque<HeldBatch, MOST_HELD_BATCHES>,
}

/// Pages of the file take at most `pages` pages from now on, and are reclaimed in batches of `batch`, or `held` are
/// held. One process maps it then, once.
pub(crate) fn limit(pages: u64, batch: u64, held: u64) {
    if pages as usize > MOST_PAGES || batch as usize > MOST_IN_BATCH {
        report::failure(&format_args!("reclaims at most {MOST_IN_BATCH} pages at a time, of {MOST_PAGES}"));
    }
    let mut reclaimer = RECLAIMER.lock();
    (reclaimer.limit, reclaimer.batch, reclaimer.most_held) = (pages, batch, held.min(pages / 2));
    // Relaxed: before the file is mapped.
    IS_LIMITED.store(true, Ordering::Relaxed);
}

fn is_limited() -> bool {
    // Relaxed: written before the file was mapped.
    IS_LIMITED.load(Ordering::Relaxed)
}

/// The process maps the file `file` in `pages` pages from `va` on.
pub(crate) fn mapped(process: &'static Process, file: u32, va: u64, pages: u64) {
    if is_limited() {
        let before = RECLAIMER.lock().mapping.replace((process, va, pages));
        if file != MAPPED_FILE || before.is_some() {
            report::failure(&"reclaims one file that one process maps; the simulator has processes=1");
        }
    }
}

/// The process is about to unmap what it has at `va`, or to end.
pub(crate) fn unmapped(process: &'static Process, va: Option<u64>) {
    if is_limited() {
        let mut reclaimer = RECLAIMER.lock();
        reclaimer.mapping.take_if(|(of, first, _)| core::ptr::eq(*of, process) && va.is_none_or(|va| va == *first));
    }
}

/// Carries out the page fault at `va`, with room for a page that it reads.
pub(crate) fn with_room<R>(process: &'static Process, va: u64, fault: impl FnOnce() -> R) -> R {
    if !is_limited() {
        return fault();
    }
    let mut reclaimer = RECLAIMER.lock();
    reclaimer.make_room();
    let page = reclaimer.page_at(process, va).filter(|&page| !memory::has_file_page(MAPPED_FILE, page));
    let result = fault();
    if let Some(page) = page {
        reclaimer.used += 1;
        reclaimer.keep(page);
    }
    result
}

impl Reclaimer {
    /// The page of the file that the process has at `va`.
    fn page_at(&self, process: &'static Process, va: u64) -> Option<u64> {
        let (of, first, pages) = self.mapping.filter(|(of, ..)| core::ptr::eq(*of, process))?;
        let _ = of;
        let page = va.checked_sub(first)? / PAGE_BYTES;
        (page < pages).then_some(page)
    }

    fn keep(&mut self, page: u64) {
        self.order.push_back(page).expect("as many places as pages that may be in memory");
    }

    fn make_room(&mut self) {
        match machine::cpu().tlb().policy().reclaim {
            Reclaim::Awaited if self.used >= self.limit => self.evict_batch(),
            Reclaim::Awaited => {}
            Reclaim::AtReuse => {
                if self.order.len() as u64 + self.most_held >= self.limit {
                    self.hold_batch();
                }
                if self.used >= self.limit {
                    self.flush_older_half();
                }
            }
        }
    }

    /// The pages that were read first, as many as one flush covers, with the address at which each is mapped.
    fn oldest(&mut self) -> Vec<(u64, Option<u64>), MOST_IN_BATCH> {
        let mut oldest = Vec::new();
        for _ in 0..self.batch {
            let Some(page) = self.order.pop_front() else { break };
            let mapping = self.mapping.filter(|&(_, _, pages)| page < pages);
            oldest.extend([(page, mapping.map(|(_, first, _)| first + page * PAGE_BYTES))]);
        }
        oldest
    }

    /// Takes a batch of pages, flushes once, and frees them.
    fn evict_batch(&mut self) {
        let (cpu, mut eviction, oldest) = (machine::cpu(), Eviction::new(), self.oldest());
        for &(_, va) in &oldest {
            if let (Some((process, ..)), Some(va)) = (self.mapping, va) {
                eviction.take(&cpu, &Ram, process.vm(), va, 1);
            }
        }
        eviction.finish(&cpu, &Ram);
        for (page, _) in oldest {
            match memory::drop_file_page(MAPPED_FILE, page, 1) {
                Some(at) => self.free([Frame { at, shift: 12 }], 1),
                None => self.keep(page),
            }
        }
    }

    /// Takes a batch of pages, which are flushed later.
    fn hold_batch(&mut self) {
        let (cpu, mut eviction, mut pages) = (machine::cpu(), CleanEviction::new(Vec::new()), 0);
        for (page, va) in self.oldest() {
            let mut taken = 0;
            if let (Some((process, ..)), Some(va)) = (self.mapping, va) {
                taken = eviction.take(&cpu, &Ram, process.vm(), va, 1);
            }
            match memory::drop_file_page(MAPPED_FILE, page, 1 + taken as u32) {
                Some(at) => {
                    eviction.hold(Frame { at, shift: 12 });
                    pages += 1;
                }
                None => self.keep(page),
            }
        }
        counters::add(Counter::RetiredPages, pages);
        if self.held.is_full() {
            self.flush_oldest();
        }
        let _has_room = self.held.push_back((eviction.defer(&cpu, protocol::periods()), pages));
    }

    /// Flushes the older half of what is held, and frees its pages.
    fn flush_older_half(&mut self) {
        let mut pages = self.flush_oldest();
        while pages < self.most_held / 2 && !self.held.is_empty() {
            pages += self.flush_oldest();
        }
    }

    fn flush_oldest(&mut self) -> u64 {
        let Some((oldest, pages)) = self.held.pop_front() else { return 0 };
        let flushed = oldest.flush(&machine::cpu(), protocol::periods(), Reason::RemovePte);
        self.free(flushed.into_frames(), pages);
        pages
    }

    /// Drops a reference of each frame; `pages` pages come free.
    fn free(&mut self, frames: impl IntoIterator<Item = Frame>, pages: u64) {
        frames.into_iter().for_each(|frame| Ram.put(frame));
        self.used -= pages;
    }
}
