//! Threads that look up random pages of a private file for which memory is too small.
//!
//! After XSBench, whose threads look cross sections up in tables that they only read, as the documents about deferred
//! flushes run it (Linux' LUF and its forerunner migrc, 2023 to 2025). There the tables move between fast and slow
//! memory; here each page that is not in memory is copied in, and another one reclaimed for it. Neither the size of the
//! tables nor that of the memory is published. One unit is one lookup.

use crate::os::{Backing, Os, Part, Protection, read_expecting};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{MAPPED_FILE, file_pattern, page_at};
use crate::team::{Rounds, crew};

parameters! {
    /// Parameters of the lookups.
    pub struct Lookups {
        /// Threads, each on a separate CPU as long as there are CPUs; 0 for one on each CPU
        threads = 0, 0..=MOST_TASKS;
        /// Pages of the file; prior
        pages = 4096, 1..=MOST_PAGES;
        /// Pages that fit into memory; prior
        fit = 3072, 1..=MOST_PAGES;
        /// Pages that are flushed at once before they are free: 1 for each by itself; Linux' SWAP_CLUSTER_MAX
        batch = 32, 1..=64;
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
            return self.look_up(part.arg, os);
        }
        let threads = if self.threads == 0 { os.cpus() } else { self.threads as u32 };
        os.limit_file_pages(self.fit, self.batch, self.held);
        let file = os.map(self.pages, Backing::FilePrivate, Protection::Read);
        crew(os, 1, threads + 1, &|role| os.thread(Part::new(role, file)), &mut || ());
        os.unmap(file, self.pages);
    }

    fn look_up(self, file: u64, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        while rounds.next(os).is_some() {
            for _ in 0..self.reads {
                let page = os.random() % self.pages;
                read_expecting(os, page_at(file, page), file_pattern(MAPPED_FILE, page));
            }
            os.compute(self.compute);
            os.count(1);
        }
    }
}
