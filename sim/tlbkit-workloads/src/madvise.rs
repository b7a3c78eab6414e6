//! One thread writes a page and gives it back, again and again, while the other threads of its process spin.
//!
//! The micro-benchmark of the series that overlaps local and remote flushes (2019): each page given back concerns
//! every spinning CPU, and nothing else happens. One unit is one page.
//!
//! The threads that spin look at a word in each turn. It lies where the data of a program do, and not beside the page,
//! which comes from mmap: 2 MiB away from both ends of a mapping of 4 MiB. A kernel that knows who uses which 2 MiB has
//! nobody to tell then.

use crate::os::{Backing, Os, Part, Protection, WorkTime, read_expecting};
use crate::parameters::{MANY, MOST_TASKS};
use crate::pattern::stamp;
use crate::team::{Rounds, StopPage, crew};

parameters! {
    /// Parameters of the micro-benchmark.
    pub struct Madvise1 {
        /// Threads, of which one works and the others spin; 0 for one on each CPU
        threads = 2, 0..=MOST_TASKS;
        /// Cycles of one turn of the spinning loop; prior
        spin_cycles = 100, 1..=MANY;
        /// Pages given back; 0 until the run is over
        rounds = 0, 0..=MANY;
        /// Every how many pages the fresh page is read, expecting zero, before it is written; 0 never
        check_fresh = 0, 0..=MANY;
        /// Cycles that the kernel works for each page besides giving it back; 0 for none
        work_cycles = 0, 0..=MANY;
        /// 1: the word at which the others look lies in the page before the one that is given back; 0: MiB away
        beside = 0, 0..=1;
        /// 1: it works between the issue of the flush and its wait; 0: after the wait
        overlap = 0, 0..=1;
    }
}

impl Madvise1 {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        os.pin(part.role);
        if part.role > 0 {
            return self.spin(StopPage(part.arg), os);
        }
        let stop = if self.beside == 0 { StopPage::in_data(os) } else { StopPage::new(os) };
        let threads = if self.threads == 0 { os.cpus() } else { self.threads as u32 };
        crew(os, 1, threads, &|role| os.thread(Part::new(role, stop.0)), &mut || {
            self.work(os);
            stop.stop_before(os, 0);
        });
    }

    fn work(self, os: &dyn Os) {
        let page = os.map(1, Backing::AnonPrivate, Protection::ReadWrite);
        let mut rounds = Rounds::new(self.rounds);
        while let Some(round) = rounds.next(os) {
            if self.check_fresh != 0 && round.is_multiple_of(self.check_fresh) {
                read_expecting(os, page, 0);
            }
            os.write(page, stamp(round, 0));
            self.give_back(page, os);
            os.count(1);
        }
    }

    fn give_back(self, page: u64, os: &dyn Os) {
        match (self.work_cycles, self.overlap) {
            (0, _) => os.dontneed(page, 1),
            (cycles, 0) => os.dontneed_and_work(page, 1, cycles, WorkTime::AfterTheWait),
            (cycles, _) => os.dontneed_and_work(page, 1, cycles, WorkTime::BeforeTheWait),
        }
    }

    /// Looks at the stop page in each turn: the CPU keeps the space loaded, and a translation with it.
    fn spin(self, stop: StopPage, os: &dyn Os) {
        while stop.goes_on(os, 1, 0, 0, 0) {
            os.compute(self.spin_cycles);
        }
    }
}
