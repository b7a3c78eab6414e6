//! RadixVM's mapbench: threads map, touch and unmap, in three degrees of sharing.
//!
//! *Local* pages are known to one CPU, *pipeline* pages to two, *global* pages to all: the ideal number of
//! interrupts for an unmap is 0, 1 and N - 1. One unit is one page touched.

use crate::os::{Backing, Channel, Os, Part, Protection};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{PAGE_BYTES, page_at, read_stamps, read_zero_or, read_zeros, stamp, write_stamps};
use crate::team::{Barrier, Rounds, StopPage, crew};

/// Who touches the pages that a thread maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// The thread alone.
    Local,
    /// The thread, then its neighbour, which unmaps them.
    Pipeline,
    /// All threads.
    Global,
}

parameters! {
    /// Parameters of mapbench.
    pub struct MapBench {
        /// Threads, each on its own CPU; 0 for one on each CPU
        threads = 0, 0..=MOST_TASKS;
        /// Pages of one mapping; the source's default
        pages = 1, 1..=MOST_PAGES;
        /// Rounds; 0 until the run is over
        rounds = 0, 0..=MANY;
        /// Every how many rounds fresh pages are read, expecting zero, before they are written; 0 never
        check_fresh = 0, 0..=MANY;
    }
}

/// What one thread knows: the stop page, the mailboxes behind it, and behind those the table of all.
#[derive(Clone, Copy)]
struct Seat {
    me: u32,
    of: u32,
    stop: StopPage,
}

impl MapBench {
    pub(crate) fn run(self, sharing: Sharing, part: Part, os: &dyn Os) {
        let of = if self.threads == 0 { os.cpus() } else { self.threads as u32 };
        if part.role > 0 {
            let seat = Seat { me: part.role - 1, of, stop: StopPage(part.arg) };
            os.pin(seat.me);
            return match sharing {
                Sharing::Local => self.local(seat, os),
                Sharing::Pipeline => self.pipeline(seat, os),
                Sharing::Global => self.global(seat, os),
            };
        }
        let table_pages = u64::from(of) * self.pages;
        let base = os.map(1 + u64::from(of) + table_pages, Backing::AnonPrivate, Protection::ReadWrite);
        crew(os, 1, of + 1, &|role| os.thread(Part::new(role, base)), &mut || ());
    }

    fn local(self, seat: Seat, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        while let Some(round) = rounds.next(os) {
            let base = self.map_filled(seat, round, os);
            os.unmap(base, self.pages);
            os.count(self.pages);
        }
    }

    /// Each thread hands its mapping to the next one and waits until it was taken; a thread is at most as many rounds
    /// ahead of thread 0 as there are threads, hence the notice.
    fn pipeline(self, seat: Seat, os: &dyn Os) {
        let mut round = 0;
        while seat.stop.goes_on(os, seat.me, round, self.rounds, u64::from(seat.of) + 1) {
            let mine = self.map_filled(seat, round, os);
            os.write(seat.mailbox(seat.me), mine | (round % PAGE_BYTES));
            os.post(seat.ready(seat.me));
            self.take(seat, round, os);
            os.wait(seat.taken(seat.me));
            round += 1;
        }
    }

    /// Touches and unmaps what the thread on the left mapped in this round.
    fn take(self, seat: Seat, round: u64, os: &dyn Os) {
        let left = seat.left();
        os.wait(seat.ready(left));
        let letter = os.read(seat.mailbox(left));
        let base = letter & !(PAGE_BYTES - 1);
        if letter % PAGE_BYTES == round % PAGE_BYTES && base != 0 {
            read_stamps(os, base, self.pages, seat.owner(left, round));
            os.unmap(base, self.pages);
            os.count(self.pages);
        } else {
            os.wrong_value(seat.mailbox(left), letter, round % PAGE_BYTES);
        }
        os.post(seat.taken(left));
    }

    /// The table stays mapped and each thread drops its slice at the end of a round: mapping over it, as the program
    /// does, zaps the same pages with the same flush, and frees no table while the neighbours' pages stand in it.
    fn global(self, seat: Seat, os: &dyn Os) {
        let barrier = Barrier { first: 0, of: seat.of };
        let table_pages = u64::from(seat.of) * self.pages;
        let slice = page_at(seat.table(), u64::from(seat.me) * self.pages);
        let mut round = 0;
        while seat.stop.goes_on(os, seat.me, round, self.rounds, 1) {
            barrier.meet(os, seat.me);
            for _ in 0..table_pages {
                self.touch_shared(seat, os.random() % table_pages, round, os);
            }
            os.count(table_pages);
            barrier.meet(os, seat.me);
            os.dontneed(slice, self.pages);
            round += 1;
        }
    }

    /// All threads store the same word in a page of a round, so a look finds that word or none.
    fn touch_shared(self, seat: Seat, page: u64, round: u64, os: &dyn Os) {
        let va = page_at(seat.table(), page);
        if self.checks_fresh(round) {
            read_zero_or(os, va, stamp(round, page));
        }
        os.write(va, stamp(round, page));
    }

    fn map_filled(self, seat: Seat, round: u64, os: &dyn Os) -> u64 {
        let base = os.map(self.pages, Backing::AnonPrivate, Protection::ReadWrite);
        if self.checks_fresh(round) {
            read_zeros(os, base, self.pages);
        }
        write_stamps(os, base, self.pages, seat.owner(seat.me, round));
        base
    }

    fn checks_fresh(self, round: u64) -> bool {
        self.check_fresh != 0 && round.is_multiple_of(self.check_fresh)
    }
}

impl Seat {
    fn left(self) -> u32 {
        (self.me + self.of - 1) % self.of
    }

    fn mailbox(self, whose: u32) -> u64 {
        page_at(self.stop.0, 1 + u64::from(whose))
    }

    fn table(self) -> u64 {
        page_at(self.stop.0, 1 + u64::from(self.of))
    }

    fn owner(self, whose: u32, round: u64) -> u64 {
        (u64::from(whose) << 15) | (round % (1 << 15))
    }

    fn ready(self, whose: u32) -> Channel {
        Channel(2 * whose)
    }

    fn taken(self, whose: u32) -> Channel {
        Channel(2 * whose + 1)
    }
}
