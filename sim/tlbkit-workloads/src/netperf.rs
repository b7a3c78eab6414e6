//! Request and response between pairs of processes; both block for each message, and their CPUs go idle.
//!
//! The netperf of the lazy TLB series (48 CPUs): client and server each have a process and a separate CPU, and
//! the CPU does nothing but go from that process to idle and back. One unit is one transaction.

use crate::os::{Backing, Os, Part, Protection, read_expecting};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{page_at, stamp};
use crate::team::{Keepsake, Ring, crew};

parameters! {
    /// Parameters of the pairs.
    pub struct Netperf {
        /// Pairs of client and server; 0 for one pair on every two CPUs
        pairs = 0, 0..=MOST_TASKS / 2;
        /// User and protocol cycles of the client for one request; prior: the series gives no rate per CPU,
        /// its throughput shared by 24 pairs would leave some 30,000 cycles for both ends, blocking and waking
        client_cycles = 10_000, 0..=MANY;
        /// The same for the server
        server_cycles = 10_000, 0..=MANY;
        /// Buffer pages that each end writes for a message; prior
        pages = 1, 0..=MOST_PAGES;
        /// Transactions of each pair; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

impl Netperf {
    /// Role 0 starts everything; role 1 + 2n is client n, role 2 + 2n its server.
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        if part.role == 0 {
            return self.launch(os);
        }
        os.pin(part.role - 1);
        let (pair, end) = ((part.role - 1) / 2, (part.role - 1) % 2);
        let ring = Ring { first: 2 * pair, of: 2, me: end };
        let buffer = os.map(self.pages.max(1), Backing::AnonPrivate, Protection::ReadWrite);
        if end == 0 {
            ring.lead(os, self.rounds, &mut |round| self.message(buffer, round, self.client_cycles, os));
        } else {
            ring.follow(os, self.rounds, &mut |round| {
                self.message(buffer, round, self.server_cycles, os);
                os.count(1);
            });
        }
        Keepsake(part.arg).check_in_child(os);
    }

    fn launch(self, os: &dyn Os) {
        let keepsake = Keepsake(os.map(1, Backing::AnonPrivate, Protection::ReadWrite));
        keepsake.write_before_fork(os);
        let pairs = if self.pairs == 0 { (os.cpus() / 2).max(1) } else { self.pairs as u32 };
        crew(os, 1, 1 + 2 * pairs, &|role| os.fork(Part::new(role, keepsake.0)), &mut || keepsake.write_after_fork(os));
        keepsake.check_in_parent(os);
    }

    /// One end's part of a transaction: what it wrote for the last message still stands, then comes the next one.
    fn message(self, buffer: u64, round: u64, cycles: u64, os: &dyn Os) {
        os.compute(cycles);
        for page in 0..self.pages {
            let va = page_at(buffer, page);
            read_expecting(os, va, if round == 0 { 0 } else { stamp(round - 1, page) });
            os.write(va, stamp(round, page));
        }
    }
}
