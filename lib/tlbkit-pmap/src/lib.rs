//! x86-64 page tables and address spaces on top of `tlbkit`, as a kernel needs them.
//!
//! [`Vm`] is the memory of a process: regions, page faults, fork with copy-on-write, exec, exit. [`Pmap`] is its page
//! tables. [`KernelMap`] is the kernel half, which all spaces share. Frames are accessed only through [`Memory`]. The
//! crate allocates nothing and has no unsafe code.
//!
//! # Which change is flushed when
//!
//! | change of an entry | flush | reason |
//! |---|---|---|
//! | not present to present, or wider permissions | none: a stale translation faults, and the fault invalidates it | |
//! | present to not present | one per call, before the frames are put (INV-1) | `RemovePte`, `RemoveAll` |
//! | a dirty page of shared memory unhooked | under policies of Linux one per page table, under its lock | |
//! | narrower permissions | one per call | `WriteProtect`, `Fork` |
//! | another frame: copy-on-write, a replacement | at once: clear, flush, write the new one | `CopyOnWrite`, `Enter` |
//! | a large page split into base pages | at once, likewise | `Enter` |
//! | any of these, of an entry that no CPU has accessed | none, if the policy relies on that | |
//! | a clean page of a file reclaimed | if the policy says so, not before its frame is reused, or its copy mapped | |
//! | an accessed bit cleared, to age a page | one per page table, under its lock | `WriteProtect` |
//! | a store by the only holder of a frame | none: the permissions only get wider | |
//! | a page-table page unhooked | with the flush of its call, which then reaches lazy TLB CPUs too | `FreeTable` |
//! | the page tables of a dying space | none if they are freed at destroy, else as above | `FreeTable` |
//! | a kernel window unmapped | every CPU, global translations included | `KernelRemove` |
//! | the window to foreign page tables moved | every CPU | `ForeignTables` |
//! | a running thread migrates | none here: the protocol's context switch takes care of it | |
//!
//! Entries are cleared by an atomic exchange, so that no A or D bit is lost (C-41). The D bit is relied on only after
//! the flush (C-42); the A bit is if the policy says so (`accessed.rs`). A sweep that holds 512 frames flushes and goes
//! on.
//!
//! # Lock order
//!
//! 1. the regions' lock of a space, for reading or writing (the parent's before the child's);
//! 2. the window to foreign page tables, while they are accessed;
//! 3. the lock of one last-level table and of the entry that points to it, or the lock of the kernel's tables;
//! 4. the lock of a space's upper levels, while tables are added to them.
//!
//! A frame is allocated, zeroed or copied before lock 3 is taken, and what was read before is checked again under it.
//! Tables are unhooked only with lock 1 held for writing, when no other CPU walks them.
//!
//! All of these locks spin with interrupts on, so a holder may flush. None is taken in an interrupt handler, and a
//! holder is not preempted. A root is freed by [`Vm::destroy`] if it returns `Now`; otherwise by [`Vm::reclaim`], which
//! the kernel calls once the protocol has reported that the last lazy reference is gone.
#![no_std]
#![forbid(unsafe_code)]

mod accessed;
mod clean;
mod directories;
mod error;
mod evict;
mod fault;
mod foreign;
mod fork;
mod gather;
mod kernel;
mod lock;
mod memory;
mod pmap;
pub mod pte;
mod region;
mod retire;
mod sweep;
mod table;
mod vm;
mod withdraw;

pub use clean::CleanEviction;
pub use error::Error;
pub use evict::Eviction;
pub use fault::{Access, Fault};
pub use fork::{ChildFill, Forked};
pub use kernel::{KernelMap, KernelWindow, WINDOW_PAGES};
pub use lock::{TABLE_LOCKS, TableLock};
pub use memory::{Frame, Memory, Purpose};
pub use pmap::Pmap;
pub use region::{Backing, MAX_REGIONS, Protection, Region};
pub use retire::Retirement;
pub use table::USER_END;
pub use tlbkit_arch::Pte;
pub use vm::{USER_BASE, Vm};
pub use withdraw::Withdrawal;
