//! What the machine reports. It judges nothing: a [`Monitor`](super::Monitor) looks at each observation, and at the
//! machine as it is at that moment.

use std::any::Any;

use super::buffer::Store;
use super::memory::{FrameName, Use};

/// Something that happens on the machine, or to the run on it.
pub(crate) enum Observation<'a> {
    /// `cpu` may be able to reach something else than before: its mode has changed, a call of the kernel has returned,
    /// or a frame was freed.
    ReachChanged { cpu: usize },
    /// `cpu` has written CR3.
    RootLoaded { cpu: usize },
    /// Kernel code on `cpu` may touch user memory, through the kernel half: the protocol has said so.
    UserMemoryAllowed { cpu: usize },
    /// The walker of `cpu`, on its way to `va`, reads a page-table page that was freed since its address was `fetched`.
    FreedTableWalked { cpu: usize, va: u64, level: u32, table: FrameName, fetched: u64 },
    /// The same of code of the kernel on `cpu`, which takes no lock.
    FreedTableRead { cpu: usize, va: u64, level: u32, table: FrameName },
    /// CPUs were given other top-level tables of a space than the one at `root`, which none of them loads any more.
    TablesReplaced { root: u64 },
    /// An instruction of `cpu` faults.
    InstructionFaulted { cpu: usize, exception: Exception },
    /// A plain store is about to overwrite the word at `at` in physical memory.
    StoreArrives { at: u64, store: &'a Store },
    /// The page-table entry at `at`, which held `before`, was changed by the operation `op`.
    EntryChanged { at: u64, before: u64, op: u32 },
    /// A program has loaded `value` from memory.
    UserLoad { space: usize, va: u64, value: u64 },
    /// The protocol accesses a word of `space`, of which it has said that it can be freed.
    FreedSpaceAccessed { space: usize },
    /// No CPU makes progress: each looks again and again, or the run has reached its limit of steps.
    Stuck(&'static str),
    /// The code under test has panicked.
    Panicked(&'a (dyn Any + Send)),
    /// The programs are over. `space`, whose top-level page table is at `root`, was destroyed, and the kernel was not
    /// notified that it can be freed.
    SpaceNotFreed { space: usize, root: u64 },
    /// The kernel has given everything back; `before` it began, these frames were in use.
    AllGivenBack { before: &'a [(u64, Use)] },
}

/// An exception of the kernel's own making, with the rule that was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exception(pub &'static str);
