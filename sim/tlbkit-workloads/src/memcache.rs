//! Requests to the threads of one server process; each thread blocks for its next request, and its CPU goes idle.
//!
//! The memcache-like load of the lazy TLB series. Unlike netperf's, the servers share one address space, so that all
//! their CPUs write one CPU set when they leave it at each idle. One unit is one request.

use crate::os::{Backing, Os, Part, Protection, read_expecting};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{page_at, stamp, write_stamps};
use crate::team::{Keepsake, Ring, crew};

parameters! {
    /// Parameters of the server and its clients.
    pub struct Memcache {
        /// Server threads, each with a client process; 0 for one on every two CPUs
        workers = 0, 0..=MOST_TASKS / 2;
        /// Pages of the items, shared by all server threads; prior
        items = 1024, 1..=MOST_PAGES;
        /// Pages of items that one request reads, drawn at random; prior
        reads = 4, 0..=MOST_PAGES;
        /// User and protocol cycles of the client for one request; prior
        client_cycles = 10_000, 0..=MANY;
        /// The same for the server; prior
        server_cycles = 10_000, 0..=MANY;
        /// Requests of each client; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

/// Owner of the words in the items.
const ITEMS: u64 = 0x17e;
/// The server process; role 2 + 2n is client n, role 3 + 2n its server thread.
const SERVER: u32 = 1;

impl Memcache {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        match part.role {
            0 => self.launch(os),
            SERVER => self.serve(part, os),
            role if role % 2 == 0 => self.client(part, os),
            _ => self.worker(part, os),
        }
    }

    fn launch(self, os: &dyn Os) {
        let keepsake = Keepsake(os.map(1, Backing::AnonPrivate, Protection::ReadWrite));
        keepsake.write_before_fork(os);
        // Index 0 is the server, index n + 1 the client n.
        let start = |index: u32| {
            let role = if index == 0 { SERVER } else { 2 * index };
            os.fork(Part::new(role, keepsake.0))
        };
        crew(os, 0, self.workers(os) + 1, &start, &mut || keepsake.write_after_fork(os));
        keepsake.check_in_parent(os);
    }

    fn serve(self, part: Part, os: &dyn Os) {
        let items = os.map(self.items, Backing::AnonPrivate, Protection::ReadWrite);
        write_stamps(os, items, self.items, ITEMS);
        crew(os, 0, self.workers(os), &|index| os.thread(Part::new(3 + 2 * index, items)), &mut || ());
        Keepsake(part.arg).check_in_child(os);
    }

    fn client(self, part: Part, os: &dyn Os) {
        let ring = Ring { first: part.role - 2, of: 2, me: 0 };
        os.pin(part.role - 2);
        ring.lead(os, self.rounds, &mut |_| os.compute(self.client_cycles));
        Keepsake(part.arg).check_in_child(os);
    }

    fn worker(self, part: Part, os: &dyn Os) {
        let ring = Ring { first: part.role - 3, of: 2, me: 1 };
        os.pin(part.role - 2);
        ring.follow(os, self.rounds, &mut |_| {
            for _ in 0..self.reads {
                let page = os.random() % self.items;
                read_expecting(os, page_at(part.arg, page), stamp(ITEMS, page));
            }
            os.compute(self.server_cycles);
            os.count(1);
        });
    }

    fn workers(self, os: &dyn Os) -> u32 {
        if self.workers == 0 { (os.cpus() / 2).max(1) } else { self.workers as u32 }
    }
}
