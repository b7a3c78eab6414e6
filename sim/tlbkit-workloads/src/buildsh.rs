//! A system build from source: jobs that run one short process after another.
//!
//! Each command is a fork of the job's shell (copy-on-write faults on both sides), an exec, a file image and its
//! data, sources read through windows of the kernel's own space, a heap that grows step by step, memory given back
//! in pieces, and an exit. NetBSD's build.sh is the program of the batching patch; the patch says nothing of its
//! processes, so all sizes here are priors: they set how often each step occurs, not what it costs. One unit is one
//! command.

use crate::os::{Backing, Os, Part, Protection};
use crate::parameters::{MANY, MOST_PAGES, MOST_TASKS};
use crate::pattern::{page_at, read_file_pages, read_stamps, read_zeros, write_stamps};
use crate::team::{Keepsake, Rounds, crew};

parameters! {
    /// Parameters of the build.
    pub struct BuildSh {
        /// Jobs at a time (make -j); 0 for one on each CPU
        jobs = 0, 0..=MOST_TASKS;
        /// Pages of the shell's data that are written before each fork; prior
        shell_pages = 40, 1..=MOST_PAGES;
        /// Of those, pages that both sides write between fork and exec; prior
        child_pages = 10, 0..=MOST_PAGES;
        /// Pages of the program's text that are used; prior
        text_pages = 60, 0..=MOST_PAGES;
        /// Pages of the program's data, a private file mapping that is written; prior
        data_pages = 12, 0..=MOST_PAGES;
        /// Files read; prior
        files = 8, 0..=MANY;
        /// Pages of each file; prior
        file_pages = 4, 1..=MOST_PAGES;
        /// Steps in which the heap grows, as by brk; prior
        heap_steps = 8, 0..=MANY;
        /// Pages of one step; prior
        step_pages = 8, 1..=MOST_PAGES;
        /// Every how many steps of the heap one is unmapped again; prior
        unmap_every = 4, 1..=MANY;
        /// User cycles between two steps of the heap; prior
        step_cycles = 200_000, 0..=MANY;
        /// Percent by which they may be fewer or more, evenly spread; prior
        step_spread = 0, 0..=100;
        /// Commands of each job; 0 until the run is over
        rounds = 0, 0..=MANY;
        /// Times that a command moves to another CPU before it ends: one that it leaves idle goes on holding its space
        moves = 0, 0..=MANY;
        /// Every how many heap steps fresh pages are read, expecting zero, before they are written; 0 never
        check_fresh = 0, 0..=MANY;
    }
}

/// A job's shell; role 0 is make.
const SHELL: u32 = 1;
/// A command of a job.
const COMMAND: u32 = 2;
/// Owners of the words in the shell's data, by who wrote them.
const SHELL_WORDS: u64 = 0x5e11;
const AFTER_FORK_WORDS: u64 = 0xaf7e;
const CHILD_WORDS: u64 = 0xc417d;
/// Owner of the words in a command's heap and data.
const PROGRAM_WORDS: u64 = 0x9706;

impl BuildSh {
    pub(crate) fn run(self, part: Part, os: &dyn Os) {
        match part.role {
            SHELL => self.shell(part, os),
            COMMAND => self.command(part, os),
            _ => self.make(os),
        }
    }

    fn make(self, os: &dyn Os) {
        let keepsake = Keepsake(os.map(1, Backing::AnonPrivate, Protection::ReadWrite));
        keepsake.write_before_fork(os);
        let jobs = if self.jobs == 0 { os.cpus() } else { self.jobs as u32 };
        crew(os, 0, jobs, &|_| os.fork(Part::new(SHELL, keepsake.0)), &mut || keepsake.write_after_fork(os));
        keepsake.check_in_parent(os);
    }

    /// Writes its data before each fork, so that each fork has pages to protect, and goes on writing while the child
    /// runs: neither may see what the other wrote.
    fn shell(self, part: Part, os: &dyn Os) {
        let data = os.map(self.shell_pages, Backing::AnonPrivate, Protection::ReadWrite);
        let mut rounds = Rounds::new(self.rounds);
        while rounds.next(os).is_some() {
            write_stamps(os, data, self.shell_pages, SHELL_WORDS);
            let command = os.fork(Part::new(COMMAND, data));
            write_stamps(os, data, self.copied_pages(), AFTER_FORK_WORDS);
            os.join(command);
            read_stamps(os, data, self.copied_pages(), AFTER_FORK_WORDS);
            os.count(1);
        }
        Keepsake(part.arg).check_in_child(os);
    }

    /// Commands that all take the same time fall into step, and then a build's time hangs on how.
    fn drawn_step_cycles(self, os: &dyn Os) -> u64 {
        let spread = (u128::from(self.step_cycles) * u128::from(self.step_spread) / 100) as u64;
        if spread == 0 { self.step_cycles } else { self.step_cycles - spread + os.random() % (2 * spread + 1) }
    }

    fn copied_pages(self) -> u64 {
        self.child_pages.min(self.shell_pages)
    }

    fn command(self, part: Part, os: &dyn Os) {
        read_stamps(os, part.arg, self.copied_pages(), SHELL_WORDS);
        write_stamps(os, part.arg, self.copied_pages(), CHILD_WORDS);
        os.exec();
        self.load(os);
        for file in 0..self.files {
            os.read_file(file as u32, self.file_pages);
        }
        for step in 0..self.heap_steps {
            self.grow(step, os);
        }
        (0..self.moves).for_each(|cpu| os.pin(cpu as u32));
    }

    /// Maps the image: text is read, data is read and then copied by the first write.
    fn load(self, os: &dyn Os) {
        if self.text_pages > 0 {
            let text = os.map(self.text_pages, Backing::FilePrivate, Protection::Read);
            read_file_pages(os, text, self.text_pages);
        }
        if self.data_pages > 0 {
            let data = os.map(self.data_pages, Backing::FilePrivate, Protection::ReadWrite);
            read_file_pages(os, data, self.data_pages);
            write_stamps(os, data, self.data_pages, PROGRAM_WORDS);
            os.protect(data, 1, Protection::Read);
            read_stamps(os, data, self.data_pages, PROGRAM_WORDS);
        }
    }

    fn grow(self, step: u64, os: &dyn Os) {
        let heap = os.map(self.step_pages, Backing::AnonPrivate, Protection::ReadWrite);
        if self.check_fresh != 0 && step.is_multiple_of(self.check_fresh) {
            read_zeros(os, heap, self.step_pages);
        }
        write_stamps(os, heap, self.step_pages, PROGRAM_WORDS + step);
        os.compute(self.drawn_step_cycles(os));
        read_stamps(os, page_at(heap, 0), self.step_pages, PROGRAM_WORDS + step);
        if (step + 1).is_multiple_of(self.unmap_every) {
            os.unmap(heap, self.step_pages);
        }
    }
}
