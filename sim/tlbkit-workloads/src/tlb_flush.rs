//! will-it-scale's tlb_flush1, tlb_flush2 and tlb_flush3: each page is written, given back and read.
//!
//! Tasks are kept on separate cores, one socket after the other, as long as there are cores (its main.c), then on
//! the cores' other threads; tasks beyond the CPUs share them, from the first on. Threads share one space, so each page
//! given back concerns all the others; processes share none, as the original's other half has it. The read finds the
//! backing's content again; that is the check of the original, too. One unit is one page.
//!
//! In the original each task maps a separate file. Here threads of tlb_flush3, and of tlb_flush1 where they are many,
//! divide one mapping among them, as a space has few regions, and give their part back where the original unmaps it.

use core::ops::Range;

use crate::os::{Backing, Os, Part, Protection, TaskId, read_expecting};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{MAPPED_FILE, PAGES_OF_A_TABLE, file_pattern, page_at, stamp};
use crate::team::{Rounds, crew};

/// What the pages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlbFlushMemory {
    /// tlb_flush1: a private mapping of a file, so that each write copies a page.
    FilePrivate,
    /// tlb_flush2: anonymous memory.
    Anon,
    /// tlb_flush3: a shared mapping of a file, so that nothing is copied, and no page is allocated or freed.
    FileShared,
}

/// Threads that map a separate file in one space; of more, each has a part of one mapping.
const MOST_FILES: u32 = 56;

parameters! {
    /// Parameters of tlb_flush1, tlb_flush2 and tlb_flush3.
    pub struct TlbFlush {
        /// Threads, each on a separate core as long as there are cores; 0 for one on each CPU
        threads = 0, 0..=MOST_TASKS;
        /// 1: processes in place of threads, each with a separate space; 0: threads of one space
        processes = 0, 0..=1;
        /// Pages of one mapping; the source has 256 (tlb_flush2) and 32768 (the others)
        pages = 256, 1..=MOST_PAGES;
        /// Mappings made by each thread; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

impl TlbFlush {
    /// The defaults of tlb_flush1 and tlb_flush3.
    pub(crate) fn of_file() -> Self {
        Self { pages: 32_768, ..Self::default() }
    }

    pub(crate) fn run(self, memory: TlbFlushMemory, part: Part, os: &dyn Os) {
        if part.role > 0 {
            os.pin_to_core(part.role - 1);
            return self.task(memory, part, os);
        }
        let tasks = if self.threads == 0 { os.cpus() } else { self.threads as u32 };
        let pages = u64::from(tasks) * self.pages;
        let is_divided = self.is_divided(memory, tasks);
        let file = if is_divided { os.map(pages, memory.backing(), Protection::ReadWrite) } else { 0 };
        crew(os, 1, tasks + 1, &|role| self.start(Part::new(role, file), os), &mut || ());
        if is_divided {
            os.unmap(file, pages);
        }
    }

    /// Whether `tasks` have parts of one mapping.
    fn is_divided(self, memory: TlbFlushMemory, tasks: u32) -> bool {
        match memory {
            TlbFlushMemory::FilePrivate => self.processes == 0 && tasks > MOST_FILES,
            TlbFlushMemory::Anon => false,
            TlbFlushMemory::FileShared => true,
        }
    }

    fn start(self, part: Part, os: &dyn Os) -> TaskId {
        if self.processes == 0 { os.thread(part) } else { os.fork(part) }
    }

    fn task(self, memory: TlbFlushMemory, part: Part, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        let mut start = self.first_start(os);
        while rounds.next(os).is_some() {
            let pages = core::mem::take(&mut start)..self.pages;
            if part.arg == 0 {
                let base = os.map(self.pages, memory.backing(), Protection::ReadWrite);
                self.mapping(memory, part.role, (base, 0), pages, os);
                os.unmap(base, self.pages);
            } else {
                let first = u64::from(part.role - 1) * self.pages;
                let base = page_at(part.arg, first);
                self.mapping(memory, part.role, (base, first), pages, os);
                os.dontneed(base, self.pages);
            }
        }
    }

    /// The page with which a task begins its first mapping in a run of a given time. Tasks that began alike would end
    /// their mappings together, and it takes them many mappings to drift apart. They differ by one page table at most:
    /// the ends of longer mappings are far apart, and beyond a run, anyway.
    fn first_start(self, os: &dyn Os) -> u64 {
        if self.rounds == 0 { os.random() % self.pages.min(PAGES_OF_A_TABLE) } else { 0 }
    }

    /// What task `me` does with these `pages` from `base` on, which is page `first` of its mapping.
    fn mapping(self, memory: TlbFlushMemory, me: u32, (base, first): (u64, u64), pages: Range<u64>, os: &dyn Os) {
        for page in pages {
            // 128 MiB page by page outlast a short run.
            if self.rounds == 0 && os.is_over() {
                break;
            }
            let va = page_at(base, page);
            os.write(va, stamp(me.into(), page));
            os.dontneed(va, 1);
            read_expecting(os, va, memory.content(me, page, first));
            os.count(1);
        }
    }
}

impl TlbFlushMemory {
    fn backing(self) -> Backing {
        match self {
            Self::FilePrivate => Backing::FilePrivate,
            Self::Anon => Backing::AnonPrivate,
            Self::FileShared => Backing::FileShared,
        }
    }

    /// What task `me` finds in its `page` that it has written and given back, where its part begins with page `first`.
    fn content(self, me: u32, page: u64, first: u64) -> u64 {
        match self {
            Self::FilePrivate => file_pattern(MAPPED_FILE, first + page),
            Self::Anon => 0,
            Self::FileShared => stamp(me.into(), page),
        }
    }
}
