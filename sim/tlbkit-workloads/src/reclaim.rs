//! Threads that look up random pages of a private file for which memory is too small, or processes that each read a
//! separate file from its first page to its last.
//!
//! The threads are after XSBench, which looks cross sections up in tables that it only reads, as the documents about
//! deferred flushes run it (Linux' LUF and its forerunner migrc, 2023 to 2025). There the tables move between fast and
//! slow memory; here each page that is not in memory is copied in, and another one reclaimed for it. The processes are
//! vm-scalability's case-lru-file-mmap-read, by which Linux' batches of reclaim were measured (2015): they share no
//! memory but that for which all of them are too many. One unit is one lookup.

use crate::os::{Backing, FileLimit, Os, Part, Protection, ReadAhead, read_expecting};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{MAPPED_FILE, file_pattern, page_at};
use crate::team::{Rounds, crew};

parameters! {
    /// Parameters of the lookups.
    pub struct Lookups {
        /// Threads, each on a separate CPU as long as there are CPUs; 0 for one on each CPU
        threads = 0, 0..=MOST_TASKS;
        /// 1: processes in place of threads, each with a separate file that it reads in order, again and again
        processes = 0, 0..=1;
        /// Pages of a file; prior
        pages = 4096, 1..=MOST_PAGES;
        /// Pages that fit into memory; prior
        fit = 3072, 1..=MOST_PAGES;
        /// Pages that are flushed at once before they are free: 1 for each by itself; Linux' SWAP_CLUSTER_MAX
        batch = 32, 1..=512;
        /// Pages that may be free and not flushed, where the policy has it so; prior
        held = 128, 2..=MOST_PAGES;
        /// Pages that a lookup reads; prior
        reads = 5, 1..=MANY;
        /// Cycles of a lookup besides; prior
        compute = 1000, 0..=MANY;
        /// Lookups of each thread; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

impl Lookups {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        if part.role > 0 {
            os.pin_to_core(part.role - 1);
            return if self.processes == 0 { self.look_up(part.arg, os) } else { self.read_in_order(part.role, os) };
        }
        let threads = if self.threads == 0 { os.cpus() } else { self.threads as u32 };
        let Self { fit: pages, batch, held, .. } = self;
        let read_ahead = if self.processes == 0 { ReadAhead::Nothing } else { ReadAhead::FaultAround };
        os.limit_file_pages(FileLimit { pages, batch, held, read_ahead });
        if self.processes != 0 {
            return crew(os, 1, threads + 1, &|role| os.fork(Part::new(role, 0)), &mut || ());
        }
        let at = os.map(self.pages, Backing::FilePrivate, Protection::Read);
        crew(os, 1, threads + 1, &|role| os.thread(Part::new(role, at)), &mut || ());
        os.unmap(at, self.pages);
    }

    fn look_up(self, at: u64, os: &dyn Os) {
        self.lookups((MAPPED_FILE, at), || os.random() % self.pages, os);
    }

    fn read_in_order(self, file: u32, os: &dyn Os) {
        let at = os.map_file(file, self.pages, Backing::FilePrivate, Protection::Read);
        let mut next = (0..self.pages).cycle();
        self.lookups((file, at), || next.next().expect("a file has pages"), os);
        os.unmap(at, self.pages);
    }

    /// Reads the pages of `file`, which is mapped at `at`, that `page` names.
    fn lookups(self, (file, at): (u32, u64), mut page: impl FnMut() -> u64, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        while rounds.next(os).is_some() {
            for _ in 0..self.reads {
                let page = page();
                read_expecting(os, page_at(at, page), file_pattern(file, page));
            }
            os.compute(self.compute);
            os.count(1);
        }
    }
}
