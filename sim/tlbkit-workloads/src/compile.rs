//! A kernel build: compilers that work on a heap and give memory back in the sizes that were measured.
//!
//! make -j8 on the machine of the PTI post. Each compiler is forked and exec'd, maps its image, fills a heap, and
//! then again and again computes, reads heap pages, and gives back, unmaps or protects as many pages as a draw from
//! [`FLUSH_SIZES`](crate::FLUSH_SIZES) says. One unit is one of those.

use crate::flush_sizes::{LARGEST_FLUSH, draw_flush_size};
use crate::os::{Backing, Os, Part, Protection, read_expecting};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{page_at, read_file_pages, read_stamps, read_zeros, stamp, write_stamps};
use crate::team::{Keepsake, Rounds, crew};

parameters! {
    /// Parameters of the build.
    pub struct Compile {
        /// Compilers at a time; the post has make -j8
        jobs = 8, 1..=MOST_TASKS;
        /// Pages of the compiler's image that are used; prior
        text_pages = 400, 0..=MOST_PAGES;
        /// Pages of its heap; prior
        heap_pages = 1024, 1..=MOST_PAGES;
        /// Heap pages read between two flushes, drawn at random; prior
        reads = 512, 0..=MANY;
        /// User cycles between two flushes, reads not included; prior: the post gives neither clock nor rate of flushes
        user_cycles = 2_000_000, 0..=MANY;
        /// Flushes of one compiler; prior
        flushes = 500, 1..=MANY;
        /// Of 100 flushes, those by unmap; prior
        unmap_percent = 10, 0..=100;
        /// Of 100 flushes, those by protect, taken from what unmap leaves; prior
        protect_percent = 10, 0..=100;
        /// Source files of each job; 0 until the run is over
        rounds = 0, 0..=MANY;
        /// Every how many flushes fresh pages are read, expecting zero, before they are written; 0 never
        check_fresh = 0, 0..=MANY;
    }
}

/// A job: forks one compiler after the other. Role 0 is make.
const JOB: u32 = 1;
/// A compiler.
const COMPILER: u32 = 2;
/// Owner of the words in the heap.
const HEAP_WORDS: u64 = 0x4ea9;

impl Compile {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        match part.role {
            JOB => self.job(part, os),
            COMPILER => self.compiler(os),
            _ => self.make(os),
        }
    }

    fn make(self, os: &dyn Os) {
        let keepsake = Keepsake(os.map(1, Backing::AnonPrivate, Protection::ReadWrite));
        keepsake.write_before_fork(os);
        let start = |_| os.fork(Part::new(JOB, keepsake.0));
        crew(os, 0, self.jobs as u32, &start, &mut || keepsake.write_after_fork(os));
        keepsake.check_in_parent(os);
    }

    fn job(self, part: Part, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        while rounds.next(os).is_some() {
            let compiler = os.fork(Part::new(COMPILER, 0));
            os.join(compiler);
        }
        Keepsake(part.arg).check_in_child(os);
    }

    fn compiler(self, os: &dyn Os) {
        os.exec();
        if self.text_pages > 0 {
            let text = os.map(self.text_pages, Backing::FilePrivate, Protection::Read);
            read_file_pages(os, text, self.text_pages);
        }
        let heap = os.map(self.heap_pages, Backing::AnonPrivate, Protection::ReadWrite);
        write_stamps(os, heap, self.heap_pages, HEAP_WORDS);
        let arenas = Arenas { dropped: arena(os), protected: arena(os) };
        for flush in 0..self.flushes {
            // A compiler outlives the run by many flushes; without a number of files it ends with the run.
            if self.rounds == 0 && os.is_over() {
                return;
            }
            self.work(heap, os);
            self.give_back(arenas, flush, os);
            os.count(1);
        }
    }

    fn work(self, heap: u64, os: &dyn Os) {
        os.compute(self.user_cycles);
        for _ in 0..self.reads {
            let page = os.random() % self.heap_pages;
            read_expecting(os, page_at(heap, page), stamp(HEAP_WORDS, page));
        }
    }

    fn give_back(self, arenas: Arenas, flush: u64, os: &dyn Os) {
        let pages = draw_flush_size(os.random());
        let kind = os.random() % 100;
        if kind < self.unmap_percent {
            let place = os.map(pages, Backing::AnonPrivate, Protection::ReadWrite);
            self.fill(place, pages, flush, os);
            os.unmap(place, pages);
        } else if kind < self.unmap_percent + self.protect_percent {
            // Taking the right to write is the flush; giving it back needs none.
            write_stamps(os, arenas.protected, pages, flush);
            os.protect(arenas.protected, pages, Protection::Read);
            read_stamps(os, arenas.protected, pages, flush);
            os.protect(arenas.protected, pages, Protection::ReadWrite);
        } else {
            self.fill(arenas.dropped, pages, flush, os);
            os.dontneed(arenas.dropped, pages);
        }
    }

    fn fill(self, place: u64, pages: u64, flush: u64, os: &dyn Os) {
        if self.check_fresh != 0 && flush.is_multiple_of(self.check_fresh) {
            read_zeros(os, place, pages);
        }
        write_stamps(os, place, pages, flush);
    }
}

/// The two places that flushes of a compiler go to; kept apart, so that dropped pages are always fresh.
#[derive(Clone, Copy)]
struct Arenas {
    dropped: u64,
    protected: u64,
}

fn arena(os: &dyn Os) -> u64 {
    os.map(LARGEST_FLUSH, Backing::AnonPrivate, Protection::ReadWrite)
}
