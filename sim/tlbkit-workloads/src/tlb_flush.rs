//! will-it-scale's tlb_flush1, tlb_flush2 and tlb_flush3, with threads: each page is written, given back and read.
//!
//! All threads share one space and run on CPUs of their own, so each page given back concerns all the others. The
//! read finds the backing's content again; that is the check of the original, too. One unit is one page.
//!
//! In the original of tlb_flush3 each thread maps a file of its own. Here they divide one mapping among them, as a
//! space has few regions, and give their part back where the original unmaps it.

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
            return self.thread(memory, part, os);
        }
        let threads = if self.threads == 0 { os.cpus() } else { self.threads as u32 };
        let pages = u64::from(threads) * self.pages;
        let is_shared = memory == TlbFlushMemory::FileShared;
        let file = if is_shared { os.map(pages, memory.backing(), Protection::ReadWrite) } else { 0 };
        crew(os, 1, threads + 1, &|role| os.thread(Part::new(role, file)), &mut || ());
        if is_shared {
            os.unmap(file, pages);
        }
    }

    fn thread(self, memory: TlbFlushMemory, part: Part, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        while rounds.next(os).is_some() {
            if memory == TlbFlushMemory::FileShared {
                let base = page_at(part.arg, u64::from(part.role - 1) * self.pages);
                self.mapping(memory, part.role, base, os);
                os.dontneed(base, self.pages);
            } else {
                let base = os.map(self.pages, memory.backing(), Protection::ReadWrite);
                self.mapping(memory, part.role, base, os);
                os.unmap(base, self.pages);
            }
        }
    }

    /// What thread `me` does with the pages from `base`.
    fn mapping(self, memory: TlbFlushMemory, me: u32, base: u64, os: &dyn Os) {
        for page in 0..self.pages {
            // 128 MiB page by page outlast a short run.
            if self.rounds == 0 && os.is_over() {
                break;
            }
            let va = page_at(base, page);
            os.write(va, stamp(me.into(), page));
            os.dontneed(va, 1);
            read_expecting(os, va, memory.content(me, page));
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

    /// What thread `me` finds in a page that it has written and given back.
    fn content(self, me: u32, page: u64) -> u64 {
        match self {
            Self::FilePrivate => file_pattern(MAPPED_FILE, page),
            Self::Anon => 0,
            Self::FileShared => stamp(me.into(), page),
        }
    }
}
