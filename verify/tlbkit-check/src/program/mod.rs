//! Small kernels: what each CPU does, one after another, on a machine under one policy.
//!
//! An operation that makes no sense when its turn comes (a page that is not mapped, a space that is dead) does nothing.
//! So every sequence of operations is a program, which makes random ones, shrunk ones and bytes of a fuzzer alike.

mod accessed;
mod broadcast;
pub(crate) mod bytes;
mod calls;
mod direct;
mod directories;
mod early;
pub(crate) mod execute;
mod generate;
mod giant;
mod guest;
pub(crate) mod kernel;
mod later;
pub mod named;
mod outstanding;
mod own;
mod pages;
pub(crate) mod reclaim;
mod retire;
mod small;
mod tasks;
mod walk;
pub(crate) mod wind_up;
mod window;

pub use crate::machine::guest::Host;
pub(crate) use direct::Tree;
pub use direct::{FlushedBy, Leaves, TakenBy};

use tlbkit::{Policy, Reclaim, Unaccessed};

/// Which access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// Permissions that [`Op::Protect`] gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// None.
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// What is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Private memory.
    Private,
    /// Memory shared with children.
    Shared,
    /// A file, private.
    File,
    /// Private memory in a 2 MiB page.
    Large,
}

/// What one CPU does next. Pages are numbered from the first that a program can have; spaces from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Switches to a task of a space.
    Run(u8),
    /// Idles: the space stays loaded lazily, if the policy has it so.
    Idle,
    /// Loads the kernel's own tables.
    KernelTables,
    /// Maps pages where there is room.
    Map(u8, Content),
    /// The program touches a page.
    Touch(u8, Access),
    /// The kernel reads the page tables on the way to a page with interrupts off and no lock, as fast GUP does.
    Walk(u8),
    /// It reads those of the kernel half in the same way.
    KernelWalk,
    /// The program computes for some steps.
    Compute(u8),
    /// Unmaps pages from a page on.
    Unmap(u8, u8),
    /// Changes what the program may do with pages.
    Protect(u8, u8, Rights),
    /// Gives the frames of pages back.
    DontNeed(u8, u8),
    /// Clears the accessed bits of pages.
    Age(u8, u8),
    /// Takes pages from every space that is alive, and flushes once.
    Evict(u8, u8),
    /// Takes pages away and asks for their flush, under locks and with interrupts off; the wait comes later.
    Withdraw(u8, u8),
    /// Takes clean pages of the file from every space that is alive, and flushes when their frames are needed: later.
    Reclaim(u8, u8),
    /// Unmaps pages and retires them: nobody is interrupted, and frames and addresses come back later.
    Retire(u8, u8),
    /// Waits for what this CPU withdrew first.
    Settle,
    /// Asks whether what this CPU withdrew first is over, and goes on with it if so.
    Poll,
    /// Waits for what another CPU withdrew first: the task that did has gone to this one.
    Adopt,
    /// Drops what this CPU withdrew last: nobody ever waits for it, and its frames are lost.
    Forget,
    /// Drops pages from this CPU's TLB alone.
    FlushHere(u8, u8),
    /// This many spaces come and go elsewhere, so that the next one that is made has a later id.
    PassIds(u8),
    /// Copies the space into a new one.
    Fork,
    /// Asks for a PCID of the space that all CPUs share.
    Share,
    /// Empties the space, as exec does.
    Clear,
    /// The last task of the space ends; the space is destroyed.
    Exit,
    /// Maps two neighbouring pages of 1 GiB, unless somebody has mapped them.
    GiantMap,
    /// Unmaps those, by one flush.
    GiantUnmap,
    /// Enters the frame that a page has again, with other rights: read, or read and write.
    Reenter(u8, Rights),
    /// Enters page tables of the little kernel's own in the space, unless some space has them.
    TreeEnter(Leaves),
    /// Takes those out, flushes and frees them.
    TreeTake(TakenBy),
    /// Takes the right to write from the page of those that everybody uses, and flushes; or gives it back.
    TreeProtect,
    /// Enters page tables of the little kernel's own in the kernel half, unless there are some.
    KernelTreeEnter(Leaves),
    /// Takes those out, flushes and frees them.
    KernelTreeTake(TakenBy),
    /// Takes out a page that only this CPU uses and flushes it here, or enters it again.
    OwnPage(FlushedBy),
    /// Maps a window of kernel addresses.
    KernelMap,
    /// Unmaps the newest window.
    KernelUnmap,
    /// Takes pages of the newest window out, and flushes what it found.
    KernelTake(u8, u8),
    /// Takes pages of the newest window out and asks for their flush, under a lock and with interrupts off; the wait
    /// comes later.
    KernelWithdraw(u8, u8),
    /// The kernel uses a foreign space for a moment.
    Borrow(u8),
    /// Goes offline, and comes back after some steps.
    Offline(u8),
    /// Is stopped by force, declared so, and restarted after some steps.
    Stop(u8),
    /// Is stopped by force, declared so after some steps, and never comes back.
    Die(u8),
    /// A load of a file maps so many pages around it from now on.
    FaultAround(u8),
    /// Sets the ceiling, in pages.
    Ceiling(u8),
    /// Flushes user halves by the next CR3 write from now on.
    DeferUserFlush,
    /// The machine is a guest of such a host, which preempts CPUs from now on: before everything else.
    Host(Host),
    /// Gives each CPU its own upper page tables in the space; before all else in every space, as soon as it is made.
    Directories,
    /// The kernel takes out without a flush what no CPU has accessed: before all else.
    SpareUnaccessed,
    /// The CPU is not to be disturbed while its program runs, and takes non-maskable interrupts: before all else.
    Isolate,
}

/// Spaces that one run can have, unless its program names more.
const SPACES: usize = 6;

/// What all CPUs do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// Done first, in order, before anything can happen at once: CPU and operation.
    pub setup: Vec<(u8, Op)>,
    /// Then each CPU does its own.
    pub cpus: Vec<Vec<Op>>,
}

impl Program {
    /// Operations altogether.
    #[must_use]
    pub fn len(&self) -> usize {
        self.setup.len() + self.cpus.iter().map(Vec::len).sum::<usize>()
    }

    /// All operations.
    pub(crate) fn ops(&self) -> impl Iterator<Item = Op> {
        self.setup.iter().map(|&(_, op)| op).chain(self.cpus.iter().flatten().copied())
    }

    /// Puts the program on a machine with that `host`, if there is one, and has the CPUs named in `isolated` not
    /// disturbed.
    pub(crate) fn surround(&mut self, host: Option<Host>, isolated: u8) {
        let is_isolated = |cpu: &u8| isolated >> cpu & 1 != 0;
        let isolates = (0..self.cpus.len() as u8).filter(is_isolated).map(|cpu| (cpu, Op::Isolate));
        let first = host.map(|host| (0, Op::Host(host))).into_iter().chain(isolates);
        self.setup = first.chain(std::mem::take(&mut self.setup)).collect();
    }

    /// True if its kernel walks page tables without a lock.
    pub(crate) fn has_walkers(&self) -> bool {
        self.ops().any(|op| matches!(op, Op::Walk(_) | Op::KernelWalk))
    }

    /// True if CPUs may have upper page tables of their own.
    pub(crate) fn has_directories(&self) -> bool {
        self.ops().any(|op| op == Op::Directories)
    }

    /// True if its kernel reclaims pages.
    pub(crate) fn reclaims(&self) -> bool {
        self.ops().any(|op| matches!(op, Op::Reclaim(..)))
    }

    /// `policy` with what the program says of its kernel.
    pub(crate) fn adapt(&self, policy: Policy) -> Policy {
        let spares = self.ops().any(|op| op == Op::SpareUnaccessed);
        let unaccessed = if spares { Unaccessed::Spared } else { policy.unaccessed };
        Policy { unaccessed, reclaim: if self.reclaims() { Reclaim::AtReuse } else { policy.reclaim }, ..policy }
    }

    /// Spaces that it can have.
    pub(crate) fn spaces(&self) -> usize {
        let named =
            self.ops().map(|op| if let Op::Run(space) | Op::Borrow(space) = op { usize::from(space) + 1 } else { 0 });
        named.max().unwrap_or(0).max(SPACES)
    }

    /// True if there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
