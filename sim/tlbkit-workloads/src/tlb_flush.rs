//! will-it-scale's tlb_flush1, tlb_flush2 and tlb_flush3, with threads: each page is written, given back and read.
//!
//! All threads share one space and run on CPUs of their own, so each page given back concerns all the others. The
//! read finds the backing's content again; that is the check of the original, too. One unit is one page.
//!
//! In the original of tlb_flush3 each thread has a file of its own, and finds what it wrote. Here all map one file, so
//! each writes what the file holds already.

use crate::os::{Backing, Os, Part, Protection, read_expecting};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{MAPPED_FILE, file_pattern, page_at, stamp};
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

parameters! {
    /// Parameters of tlb_flush1, tlb_flush2 and tlb_flush3.
    pub struct TlbFlush {
        /// Threads, each on its own CPU; 0 for one on each CPU
        threads = 0, 0..=MOST_TASKS;
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
            os.pin(part.role - 1);
            return self.thread(memory, part.role, os);
        }
        let threads = if self.threads == 0 { os.cpus() } else { self.threads as u32 };
        crew(os, 1, threads + 1, &|role| os.thread(Part::new(role, 0)), &mut || ());
    }

    fn thread(self, memory: TlbFlushMemory, me: u32, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        while rounds.next(os).is_some() {
            let base = os.map(self.pages, memory.backing(), Protection::ReadWrite);
            for page in 0..self.pages {
                // 128 MiB page by page outlast a short run.
                if self.rounds == 0 && os.is_over() {
                    break;
                }
                let va = page_at(base, page);
                os.write(va, memory.written(me, page));
                os.dontneed(va, 1);
                read_expecting(os, va, memory.content(page));
                os.count(1);
            }
            os.unmap(base, self.pages);
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

    /// What thread `me` writes into a page.
    fn written(self, me: u32, page: u64) -> u64 {
        match self {
            Self::FilePrivate | Self::Anon => stamp(me.into(), page),
            Self::FileShared => self.content(page),
        }
    }

    fn content(self, page: u64) -> u64 {
        match self {
            Self::FilePrivate | Self::FileShared => file_pattern(MAPPED_FILE, page),
            Self::Anon => 0,
        }
    }
}
