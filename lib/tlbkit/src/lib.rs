//! The TLB subsystem of an x86-64 kernel.
//!
//! Every CPU caches translations, and the page tables that they came from change. A kernel must make sure that no
//! CPU uses a translation after it was revoked, without interrupting every CPU for every change and without
//! throwing away what is still true. This crate decides who must flush what and when. It executes nothing itself:
//! [`Hardware`] is its only door to a machine, so the same source runs in kernels, on a simulated multiprocessor
//! and under model checkers.
//!
//! # The rule
//!
//! Unhook, then flush everywhere, then free. Everything else is there to make the middle step rare and cheap.
//!
//! # Invariants, cited by number wherever they are upheld
//!
//! - INV-1 unhook, then flush everywhere, then free; for page-table pages as for frames. (`gather.rs`)
//! - INV-2 a CPU that joins a space and one that revokes translations cannot both miss the other. (`address_space.rs`)
//! - INV-3 a slot's generation never exceeds its space's; neither falls; an id is never reused. (`asid.rs`)
//! - INV-4 pages alone take a slot only from g to g+1, and only if g+1 is the newest; else everything. (`local.rs`)
//! - INV-5 lazy CPUs are not interrupted unless page tables are freed. (`ask.rs`)
//! - INV-6 when a flush returns, or the wait for one that was issued, no CPU can use an old translation, and none walks
//!   an old table. (`shootdown.rs`, `ring.rs`)
//! - INV-7 a waiting CPU still answers; waiting with interrupts off is an error, not a hang; who polls an issued flush,
//!   by `Pending::poll` or by `is_done` and `answer`, may keep them off. (`wait.rs`, `pending.rs`)
//! - INV-8 PCID 0 is never a space; the halves differ in one bit; a recycled slot is flushed before use. (`asid.rs`)
//! - INV-9 frames in a gather are unreachable until flushed, and in one that was issued until waited for. (`gather.rs`,
//!   `pending.rs`)
//! - INV-10 under isolation both halves are covered before the next user instruction. (`pti.rs`)
//! - INV-11 a flush asked with global scope keeps it when collapsed. (`gather.rs`)
//! - INV-12 a no-flush CR3 load only for a slot whose generation was read as current after joining. (`switch.rs`)
//!
//! # Use
//!
//! ```
//! # use tlbkit::*;
//! fn unmap_one_page<H: Hardware>(cpu: Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, va: VirtAddr, frame: u64) {
//!     let mut gather = TlbGather::new(Translations::OfSpace(space), Vec::new());
//!     // 1. unhook: clear the page-table entry, then
//!     gather.unmap(&cpu, va, Stride::Page4K, Scope::Local, Reason::RemovePte, frame);
//!     // 2. flush everywhere, 3. free what comes out
//!     for frame in gather.flush(&cpu).into_frames() {
//!         println!("frame {frame} is free");
//!     }
//! }
//! ```
//!
//! A kernel calls [`Cpu::bring_up`] when a CPU starts, [`Cpu::switch_to`] in its context switch,
//! [`Cpu::enter_lazy`] when it goes idle, [`Cpu::answer`] in the handler of the shootdown interrupt, and
//! [`TlbGather`] whenever it takes a translation away. A task's space stays alive while it is loaded by
//! [`Cpu::switch_to`] and until the call that leaves it returns; [`Cpu::destroy`] deals with the CPUs that hold it
//! lazily.
#![cfg_attr(not(any(test, loom)), no_std)]
#![forbid(unsafe_code)]

mod addr;
mod cpu;
mod flush;
mod hardware;
mod layout;
mod policy;
mod space;
mod switch;
pub mod sync;

pub use addr::{CpuId, PAGE_BYTES, PhysAddr, SpaceToken, Stride, VirtAddr};
pub use cpu::asid::{Asid, MAX_ASIDS};
pub use cpu::state::CpuState;
pub use cpu::{Cpu, Tlb};
pub use flush::batch::TlbBatch;
pub use flush::gather::{Flushed, Scope, TlbGather};
pub use flush::pending::Pending;
pub use flush::shootdown::{OthersMustFlush, Tables};
pub use hardware::{Cr3, Event, Features, Hardware, Invpcid, IrqsOff, Late, Pcid};
pub use layout::Part;
pub use policy::history::choices::{
    Accounting, Batching, FamilyShift, History, KernelSet, LargePageWalk, LazyReferences,
};
pub use policy::history::presets::PRESETS;
pub use policy::history::state::MAX_PAGES;
pub use policy::history::stats::{CpuStats, Place, SIZES, SizeRow};
pub use policy::history::tables::{Foreign, Nested, SharedDirty, TableFree};
pub use policy::text::{KEYS, Key, TextError};
pub use policy::{
    Compare, CpuSetUpkeep, Isolation, Knobs, Lazy, LocalFlush, MAX_CEILING_PAGES, Policy, Preset, RangeRule, Reason,
    Tags, UserFlush,
};
pub use space::cpu_set::{AtomicCpuSet, Missing};
pub use space::{AddressSpace, Destroyed, Generation, SpaceId, Translations};
