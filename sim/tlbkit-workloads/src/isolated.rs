//! CPUs that are not to be disturbed: each runs a program by itself, which hardly ever calls the kernel, while the
//! others have the kernel map and unmap memory of its own.
//!
//! What rteval, or a program that polls a device, does on Linux's isolated CPUs while the rest of the machine works.
//! Each program is a process, so that nothing but flushes of kernel addresses concerns its CPU. One unit is one turn of
//! a program on an isolated CPU.

use crate::os::{Os, Part};
use crate::parameters::{MANY, MOST_TASKS};
use crate::team::{Rounds, crew};

parameters! {
    /// Parameters of the isolated CPUs.
    pub struct Isolated {
        /// CPUs that are not isolated; the others are
        others = 1, 1..=MOST_TASKS;
        /// Cycles of a turn of a program on an isolated CPU; prior
        turn_cycles = 3000, 0..=MANY;
        /// 1: each turn ends in a system call that does nothing; 0: none does
        calls = 0, 0..=1;
        /// Cycles between two flushes of kernel addresses by a CPU that is not isolated; 0 for no flush; prior
        flush_every_cycles = 300_000, 0..=MANY;
        /// Pages of each flush; prior
        flush_pages = 4, 1..=16;
        /// Turns of each program, and flushes of each other CPU; 0 until the run is over
        rounds = 0, 0..=MANY;
    }
}

impl Isolated {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        os.pin(part.role);
        if part.role >= self.others as u32 {
            return self.turn(os);
        }
        if part.role > 0 {
            return self.work(os);
        }
        crew(os, 1, os.cpus(), &|role| os.fork(Part::new(role, 0)), &mut || self.work(os));
    }

    fn turn(self, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        while rounds.next(os).is_some() {
            os.compute(self.turn_cycles);
            if self.calls == 1 {
                os.yield_now();
            }
            os.count(1);
        }
        // The last flush of the others finds the programs running.
        os.compute(self.flush_every_cycles);
    }

    fn work(self, os: &dyn Os) {
        let mut rounds = Rounds::new(self.rounds);
        while rounds.next(os).is_some() {
            // In the middle, so that the first flush finds programs that have begun.
            let half = self.flush_every_cycles.max(1000) / 2;
            os.compute(half);
            if self.flush_every_cycles > 0 {
                os.renew_kernel_pages(self.flush_pages);
            }
            os.compute(half);
        }
    }
}
