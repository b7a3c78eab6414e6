//! One thread maps pages, all threads of its process write them, and it unmaps them: only the unmapping is timed.
//!
//! LATR's mmap_micro (2018): one thread allocates, and there is a thread on each core, the first beside the allocator,
//! that writes each page. All meet before they write and after it, there by `pthread_barrier_wait`, whose last thread
//! wakes all the others; so here the last thread is the one that lets the others go, the allocator first. One unit is
//! one mapping.

use crate::os::{Backing, Os, Part, Protection};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{PAGE_BYTES, page_at, read_zero_or, stamp};
use crate::team::{Barrier, StopPage, crew};

parameters! {
    /// Parameters of the micro-benchmark.
    pub struct Munmap1 {
        /// Threads that write, each on a separate core as long as there are cores; 0 for one on each CPU
        threads = 0, 0..=MOST_TASKS;
        /// Pages of one mapping; the source's default
        pages = 1, 1..=MOST_PAGES;
        /// Mappings; 0 until the run is over
        rounds = 0, 0..=MANY;
        /// Every how many mappings each page is read before it is written; 0 never
        check_fresh = 0, 0..=MANY;
    }
}

impl Munmap1 {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        let threads = if self.threads == 0 { os.cpus() } else { self.threads as u32 };
        os.pin_to_core(part.role.saturating_sub(1));
        if part.role > 0 {
            return self.write(Seat { me: part.role, threads, stop: StopPage(part.arg) }, os);
        }
        let stop = StopPage(os.map(2, Backing::AnonPrivate, Protection::ReadWrite));
        let seat = Seat { me: 0, threads, stop };
        crew(os, 1, threads + 1, &|role| os.thread(Part::new(role, stop.0)), &mut || self.unmap(seat, os));
    }

    fn unmap(self, seat: Seat, os: &dyn Os) {
        let mut round = 0;
        while seat.stop.goes_on(os, 0, round, self.rounds, 1) {
            let base = os.map(self.pages, Backing::AnonPrivate, Protection::ReadWrite);
            os.write(seat.letter(), base | (round % PAGE_BYTES));
            seat.meet(os);
            seat.meet(os);
            os.timed(&|| os.unmap(base, self.pages));
            os.count(1);
            round += 1;
        }
        // The others have begun the round that this one does not.
        seat.meet(os);
    }

    fn write(self, seat: Seat, os: &dyn Os) {
        let mut round = 0;
        loop {
            seat.meet(os);
            if !seat.stop.goes_on(os, seat.me, round, self.rounds, 0) {
                return;
            }
            let letter = os.read(seat.letter());
            if letter % PAGE_BYTES == round % PAGE_BYTES {
                self.write_pages(letter & !(PAGE_BYTES - 1), round, os);
            } else {
                os.wrong_value(seat.letter(), letter, round % PAGE_BYTES);
            }
            seat.meet(os);
            round += 1;
        }
    }

    /// All threads store the same word in a page of a round, so a look finds that word or none.
    fn write_pages(self, base: u64, round: u64, os: &dyn Os) {
        let is_checked = self.check_fresh != 0 && round.is_multiple_of(self.check_fresh);
        for page in 0..self.pages {
            if is_checked {
                read_zero_or(os, page_at(base, page), stamp(round, page));
            }
            os.write(page_at(base, page), stamp(round, page));
        }
    }
}

/// What one thread knows. Behind the stop page is the one by which it learns the address.
#[derive(Clone, Copy)]
struct Seat {
    me: u32,
    threads: u32,
    stop: StopPage,
}

impl Seat {
    fn letter(self) -> u64 {
        page_at(self.stop.0, 1)
    }

    /// The last thread lets the others go, in their order.
    fn meet(self, os: &dyn Os) {
        let of = self.threads + 1;
        Barrier { first: 0, of }.meet(os, (self.me + 1) % of);
    }
}
