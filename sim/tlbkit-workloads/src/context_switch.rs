//! will-it-scale's context_switch1 in threads: pairs of one process that wake each other through two pipes.
//!
//! The original keeps the first of a pair on a core, where it starts the second, so that both have this core alone, and
//! may run on both of its hardware threads; so it is here, and they begin on one each. Each wakes the other one,
//! blocks, and its CPU goes idle until it is woken: from thread to idle and back, in a space that all CPUs share. Where
//! cores have one thread each, the two are on different cores. Pairs beyond the cores share them, from the first on.
//! They begin when all are there, as the original's do. One unit is one of the original's, which counts two for each
//! round trip.

use crate::os::{Backing, Channel, Os, Part, Protection, read_expecting};
use crate::parameters::{MANY, MOST_TASKS};
use crate::pattern::{page_at, stamp, write_stamps};
use crate::team::{Ring, crew};

parameters! {
    /// Parameters of the pairs.
    pub struct ContextSwitch {
        /// Pairs of threads, as the original counts its tasks; 0 for one on every two CPUs
        threads = 0, 0..=MOST_TASKS / 2;
        /// Cycles that reading and writing a pipe take, besides blocking and waking; prior
        call_cycles = 3_000, 0..=MANY;
        /// Round trips of each pair; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

/// Owner of the words that stand in the pages when the pairs begin.
const LAUNCH: u64 = 0xc50;
/// Owners of the words that the two of a pair pass through the pipes, one each.
const FIRST: u64 = 0xc51;
const SECOND: u64 = 0xc52;

impl ContextSwitch {
    /// Role 0 starts everything; role 1 + 2n is the first of pair n, role 2 + 2n the second. Each pair has a page.
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        if part.role == 0 {
            return self.launch(os);
        }
        let (pair, end) = ((part.role - 1) / 2, (part.role - 1) % 2);
        let cores = (os.cpus() / 2).max(1);
        os.pin_to_whole_core(pair % cores + end * cores);
        let (pairs, ring) = (self.pairs(os), Ring { first: 2 * pair, of: 2, me: end });
        let page = page_at(part.arg, pair.into());
        if end == 0 {
            os.wait(may_begin(pair, pairs));
            ring.lead(os, self.rounds, &mut |round| {
                let before = if round == 0 { stamp(LAUNCH, pair.into()) } else { stamp(SECOND, round - 1) };
                self.message(page, before, stamp(FIRST, round), os);
            });
        } else {
            ring.follow(os, self.rounds, &mut |round| {
                self.message(page, stamp(FIRST, round), stamp(SECOND, round), os);
                os.count(2);
            });
        }
    }

    fn launch(self, os: &dyn Os) {
        let pairs = self.pairs(os);
        let pages = os.map(pairs.into(), Backing::AnonPrivate, Protection::ReadWrite);
        write_stamps(os, pages, pairs.into(), LAUNCH);
        crew(os, 1, 1 + 2 * pairs, &|role| os.thread(Part::new(role, pages)), &mut || {
            (0..pairs).for_each(|pair| os.post(may_begin(pair, pairs)));
        });
    }

    fn pairs(self, os: &dyn Os) -> u32 {
        if self.threads == 0 { (os.cpus() / 2).max(1) } else { self.threads as u32 }
    }

    /// What the other one sent is read, and an answer written.
    fn message(self, page: u64, expected: u64, answer: u64, os: &dyn Os) {
        os.compute(self.call_cycles);
        read_expecting(os, page, expected);
        os.write(page, answer);
    }
}

/// What the first of a pair waits for before it begins; the channels before these are the rings'.
fn may_begin(pair: u32, pairs: u32) -> Channel {
    Channel(2 * pairs + pair)
}
