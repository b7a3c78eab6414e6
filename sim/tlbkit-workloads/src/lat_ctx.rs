//! lmbench's lat_ctx: a ring of processes on one CPU hands a token round; who has it sums its own array.
//!
//! One unit is one hop. With one process the token comes back at once: that run is the overhead that lmbench
//! subtracts. The array is private, written once before the ring starts.

use crate::os::{Backing, Os, Part, Protection};
use crate::parameters::{MANY, MOST_TASKS};
use crate::pattern::{read_stamps, write_stamps};
use crate::team::{Keepsake, Ring, crew};

parameters! {
    /// Parameters of the ring.
    pub struct LatCtx {
        /// Processes of the ring; lmbench sweeps 2 to 96
        processes = 2, 1..=MOST_TASKS;
        /// KiB summed at each hop; lmbench's script has 0, 4, 8, 16, 32, 64
        kib = 0, 0..=1 << 20;
        /// Times round the ring; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

impl LatCtx {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        os.pin(0);
        if part.role == 0 { self.lead(os) } else { self.follow(part, os) }
    }

    fn lead(self, os: &dyn Os) {
        let keepsake = Keepsake(os.map(1, Backing::AnonPrivate, Protection::ReadWrite));
        keepsake.write_before_fork(os);
        crew(os, 1, self.processes as u32, &|role| os.fork(Part::new(role, keepsake.0)), &mut || {
            keepsake.write_after_fork(os);
            let array = self.array(0, os);
            self.ring(0).lead(os, self.rounds, &mut |_| self.hop(0, array, os));
        });
        keepsake.check_in_parent(os);
    }

    fn follow(self, part: Part, os: &dyn Os) {
        let array = self.array(part.role, os);
        self.ring(part.role).follow(os, self.rounds, &mut |_| self.hop(part.role, array, os));
        Keepsake(part.arg).check_in_child(os);
    }

    fn array(self, me: u32, os: &dyn Os) -> u64 {
        if self.pages() == 0 {
            return 0;
        }
        let array = os.map(self.pages(), Backing::AnonPrivate, Protection::ReadWrite);
        write_stamps(os, array, self.pages(), me.into());
        array
    }

    fn hop(self, me: u32, array: u64, os: &dyn Os) {
        read_stamps(os, array, self.pages(), me.into());
        os.count(1);
    }

    fn pages(self) -> u64 {
        self.kib.div_ceil(4)
    }

    fn ring(self, me: u32) -> Ring {
        Ring { first: 0, of: self.processes as u32, me }
    }
}
