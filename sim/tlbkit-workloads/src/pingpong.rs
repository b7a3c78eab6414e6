//! Two address spaces on one CPU wake each other by counters, and read zero pages in each turn.
//!
//! The program behind the PCID commit (10af6235): eventfd ping-pong, once bare, once touching 512 zero pages. An
//! *iteration* here, and one unit of the score, is a round: both spaces have had one turn, so two switches and twice
//! `pages` reads. The commit does not say whether its iteration is that or one switch; who compares with its
//! microseconds must carry that factor of two.

use crate::os::{Backing, Os, Part, Protection};
use crate::parameters::{MANY, MOST_PAGES};
use crate::pattern::{page_at, read_zeros};
use crate::team::{Keepsake, Ring, crew};

parameters! {
    /// Parameters of the ping-pong.
    pub struct PingPong {
        /// Zero pages read in each turn; the source has 0 and 512
        pages = 0, 0..=MOST_PAGES;
        /// Further pages that each turn touches anyway; prior, counted from what such a loop cannot do without: its
        /// text, its table of addresses, the C library's read and write, the stack
        own_pages = 5, 0..=64;
        /// Rounds; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

impl PingPong {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        os.pin(0);
        if part.role == 0 { self.lead(os) } else { self.follow(part, os) }
    }

    /// Never written, the pages all stand for the one zero page: reads miss the TLB and not the cache.
    fn lead(self, os: &dyn Os) {
        let base = os.map(self.touched() + 1, Backing::AnonPrivate, Protection::ReadWrite);
        let keepsake = Keepsake(page_at(base, self.touched()));
        keepsake.write_before_fork(os);
        crew(os, 1, 2, &|role| os.fork(Part::new(role, base)), &mut || {
            keepsake.write_after_fork(os);
            ring(0).lead(os, self.rounds, &mut |_| read_zeros(os, base, self.touched()));
        });
        keepsake.check_in_parent(os);
    }

    fn touched(self) -> u64 {
        self.pages + self.own_pages
    }

    /// Counts, because its turn completes the round.
    fn follow(self, part: Part, os: &dyn Os) {
        ring(1).follow(os, self.rounds, &mut |_| {
            read_zeros(os, part.arg, self.touched());
            os.count(1);
        });
        Keepsake(page_at(part.arg, self.touched())).check_in_child(os);
    }
}

fn ring(me: u32) -> Ring {
    Ring { first: 0, of: 2, me }
}
