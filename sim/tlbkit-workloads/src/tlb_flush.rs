//! will-it-scale's tlb_flush1 and tlb_flush2, with threads: each page is written, given back and read again.
//!
//! All threads share one space and run on CPUs of their own, so each page given back concerns all the others. The
//! read finds the backing's content again; that is the check of the original, too. One unit is one page.

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
}

parameters! {
    /// Parameters of tlb_flush1 and tlb_flush2.
    pub struct TlbFlush {
        /// Threads, each on its own CPU; 0 for one on each CPU
        threads = 0, 0..=MOST_TASKS;
        /// Pages of one mapping; the source has 32768 (tlb_flush1) and 256 (tlb_flush2)
        pages = 256, 1..=MOST_PAGES;
        /// Mappings made by each thread; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

impl TlbFlush {
    /// The defaults of tlb_flush1.
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
                os.write(va, stamp(me.into(), page));
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
        }
    }

    fn content(self, page: u64) -> u64 {
        match self {
            Self::FilePrivate => file_pattern(MAPPED_FILE, page),
            Self::Anon => 0,
        }
    }
}
