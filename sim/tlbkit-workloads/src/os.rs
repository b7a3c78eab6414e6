//! What a program may ask of its kernel. The simulated kernel and the bare-metal one both implement [`Os`]; a program
//! written against it runs unchanged on either.

pub use tlbkit_pmap::{Backing, Protection};

use crate::pattern::MAPPED_FILE;

/// A counter that tasks block on, as eventfd: any task of the run may use any channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channel(pub u32);

/// A task that was started, to be joined once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId(pub u32);

/// When a kernel does work for which a flush need not be over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkTime {
    /// When the flush is over.
    AfterTheWait,
    /// Between its issue and its wait.
    BeforeTheWait,
}

/// What a task does in its workload, and one number from the task that started it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// 0 is the first task; the rest is the workload's own numbering.
    pub role: u32,
    /// What the starter hands over, mostly the address of something that both know.
    pub arg: u64,
}

impl Part {
    /// The part of the task that starts all others.
    pub const FIRST: Self = Self::new(0, 0);

    /// This role, with this number.
    #[must_use]
    pub const fn new(role: u32, arg: u64) -> Self {
        Self { role, arg }
    }
}

/// What a fault reads of a file beside the page that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadAhead {
    /// Nothing: the next page that is asked for may be any.
    Nothing,
    /// What fault-around maps: pages are asked for in order.
    FaultAround,
}

/// How much memory pages of files may take, and how they are read and reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLimit {
    /// Pages of memory.
    pub pages: u64,
    /// Pages that are reclaimed with one flush.
    pub batch: u64,
    /// Pages that may wait for their flush, where the policy defers it.
    pub held: u64,
    /// What a fault reads.
    pub read_ahead: ReadAhead,
}

/// The system calls and the memory of one task. Addresses are bytes; each page holds one checked word, at any offset.
///
/// Independent accesses overlap as the machine allows; a dependent chain is said by [`Os::chase`].
pub trait Os {
    /// Maps `pages` base pages anywhere, of the file `file` if the backing is one, and returns the first address.
    fn map_file(&self, file: u32, pages: u64, backing: Backing, protection: Protection) -> u64;
    /// Maps as [`map_file`](Self::map_file) does, the one file that all have.
    fn map(&self, pages: u64, backing: Backing, protection: Protection) -> u64 {
        self.map_file(MAPPED_FILE, pages, backing, protection)
    }
    /// Removes the mappings of `pages` pages from `va` and frees what they alone held.
    fn unmap(&self, va: u64, pages: u64);
    /// Changes what the program may do with `pages` pages from `va`.
    fn protect(&self, va: u64, pages: u64, protection: Protection);
    /// Gives the frames of `pages` pages back; the next access finds the backing's content again.
    fn dontneed(&self, va: u64, pages: u64);
    /// What [`dontneed`](Self::dontneed) does, for at most 64 pages of one page table, and `cycles` of work that the
    /// kernel has to do besides. A kernel that never issues a flush apart from its wait does one after the other.
    fn dontneed_and_work(&self, va: u64, pages: u64, cycles: u64, _when: WorkTime) {
        self.dontneed(va, pages);
        self.compute(cycles);
    }
    /// Limits the memory of files from now on: of files that nobody writes, each mapped from its first page on. A
    /// kernel that never reclaims has enough.
    fn limit_file_pages(&self, _limit: FileLimit) {}
    /// Loads the word of the page at `va`.
    fn read(&self, va: u64) -> u64;
    /// Stores the word of the page at `va`.
    fn write(&self, va: u64, value: u64);
    /// Loads the word of the page at `va`; the next access depends on it, so nothing overlaps.
    fn chase(&self, va: u64) -> u64;

    /// Starts another task of this workload in a copy of this address space, on whichever CPU the kernel chooses.
    fn fork(&self, part: Part) -> TaskId;
    /// Starts another task of this workload in this address space.
    fn thread(&self, part: Part) -> TaskId;
    /// Replaces this address space by an empty one; mappings made before are gone.
    fn exec(&self);
    /// Waits until `task` has ended (a task ends when its program returns).
    fn join(&self, task: TaskId);
    /// Keeps this task on CPU `cpu % cpus()`.
    fn pin(&self, cpu: u32);
    /// Keeps this task on the first thread of core `core`, the cores of one socket before those of the next; from the
    /// number of cores on, on their other threads in the same order. A system that knows no cores takes CPUs.
    fn pin_to_core(&self, core: u32) {
        self.pin(core);
    }
    /// As [`pin_to_core`](Self::pin_to_core), but the core's other thread may run this task as well. A system that
    /// knows no cores keeps it on one CPU.
    fn pin_to_whole_core(&self, core: u32) {
        self.pin_to_core(core);
    }

    /// Blocks until `channel` is above zero and takes one from it.
    fn wait(&self, channel: Channel);
    /// Adds one to `channel` and wakes one waiter.
    fn post(&self, channel: Channel);
    /// Lets another task of this CPU run.
    fn yield_now(&self);
    /// Uses the CPU for `cycles` without memory accesses of interest.
    fn compute(&self, cycles: u64);
    /// Reads `pages` pages of the file `file` through a window of the kernel's own space: mapped, copied, unmapped.
    fn read_file(&self, file: u32, pages: u64);

    /// Has the kernel map `pages` pages of its own, look at them and unmap them, as it does for the stack of a thread
    /// or for code that it loads: a flush of kernel addresses, which concerns every CPU. A kernel that has no such call
    /// reads a file through a window.
    fn renew_kernel_pages(&self, pages: u64) {
        self.read_file(0, pages);
    }

    /// Makes the call in `call`, as a benchmark does that times this call and nothing else: between two looks at the
    /// clock.
    fn timed(&self, call: &dyn Fn()) {
        call();
    }
    /// Adds `units` to the benchmark's score.
    fn count(&self, units: u64);
    /// True when the run's time is over; a loop without a fixed number of rounds asks this.
    fn is_over(&self) -> bool;
    /// A random number, from this task's own stream of the run's seed.
    fn random(&self) -> u64;
    /// CPUs of the machine.
    fn cpus(&self) -> u32;
    /// A page held something else than it must hold: a lost flush, or a bug of the kernel. The run fails.
    fn wrong_value(&self, va: u64, found: u64, expected: u64);
}

/// Loads the word of the page at `va` and reports it unless it is `expected`.
pub fn read_expecting(os: &dyn Os, va: u64, expected: u64) {
    let found = os.read(va);
    if found != expected {
        os.wrong_value(va, found, expected);
    }
}
