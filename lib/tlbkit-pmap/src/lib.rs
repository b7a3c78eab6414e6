//! x86-64 page tables and address spaces on top of `tlbkit`, as a kernel has them.
//!
//! [`Vm`] is a process's memory: regions, faults, fork with copy-on-write, exec, exit. [`Pmap`] is its page tables.
//! [`KernelMap`] is the half that all spaces share. [`Memory`] is the only door to frames. No allocation, no unsafe
//! code.
//!
//! # What is flushed when
//!
//! | change of an entry | flush | reason |
//! |---|---|---|
//! | nothing to something, wider permission | none: a stale entry faults, and faulting drops it | |
//! | something to nothing | one for the call, before the frames are put back (INV-1) | `RemovePte`, `RemoveAll` |
//! | a dirty page of shared memory taken out | under policies of Linux one for each table, under its lock | |
//! | narrower permission | one for the call | `WriteProtect`, `Fork` |
//! | another frame: a copy, a replacement | at once: to nothing, flush, to the new one | `CopyOnWrite`, `Enter` |
//! | one large page to small ones | at once, likewise | `Enter` |
//! | the last holder of a frame stores | none: only wider | |
//! | a page table taken out | with its call's, and on lazy CPUs too | `FreeTable` |
//! | the page tables of a dying space | none if they wait for destroy, else as above | `FreeTable` |
//! | a kernel window unmapped | every CPU, global entries included | `KernelRemove` |
//! | the window to foreign tables moved | every CPU | `ForeignTables` |
//! | a running thread migrates | none here: the protocol's switch does it | |
//!
//! Entries are taken by an atomic exchange, so that no A or D bit is lost (C-41); D is believed only after the flush
//! (C-42), and nothing here relies on A. A sweep that holds 512 frames flushes and goes on.
//!
//! # Order of locks
//!
//! 1. the regions' lock of a space, for reading or writing (of a parent before its child);
//! 2. the window to foreign tables, held while they are edited;
//! 3. the lock of one last-level table and of the entry that leads to it, or that of the kernel's tables;
//! 4. the lock of a space's upper levels, while tables are added to them.
//!
//! A frame is had, zeroed or copied before 3 is taken; what was seen before is looked at again under it. Tables are
//! taken out under 1 for writing, when nobody else walks them.
//!
//! All of them spin with interrupts on, so a holder may flush. An interrupt handler takes none of them, and a holder is
//! not preempted. Who may free a root: the one that [`Vm::destroy`] tells `Now`, or that the protocol's event of the
//! last lazy reference tells to [`Vm::reclaim`].
#![no_std]
#![forbid(unsafe_code)]

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
mod sweep;
mod table;
mod vm;
mod withdraw;

pub use error::Error;
pub use evict::Eviction;
pub use fault::{Access, Fault};
pub use fork::{ChildFill, Forked};
pub use kernel::{KernelMap, KernelWindow, WINDOW_PAGES};
pub use lock::{TABLE_LOCKS, TableLock};
pub use memory::{Frame, Memory, Purpose};
pub use pmap::Pmap;
pub use region::{Backing, MAX_REGIONS, Protection, Region};
pub use table::USER_END;
pub use tlbkit_arch::Pte;
pub use vm::{USER_BASE, Vm};
pub use withdraw::Withdrawal;
