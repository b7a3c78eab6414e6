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
mod address_space;
mod answer;
mod asid;
mod ask;
mod batch;
mod cpu_set;
mod cpu_state;
mod destroy;
mod gather;
mod hardware;
mod history;
mod hotplug;
mod issue;
mod kernels;
mod knobs;
mod leave;
mod local;
mod owed;
mod pending;
mod policy;
mod pti;
mod reason;
mod references;
mod request;
mod request_matrix;
mod ring;
mod shootdown;
mod switch;
pub mod sync;
mod text;
mod tlb;
mod union;
mod wait;
mod words;

pub use addr::{CpuId, PAGE_BYTES, PhysAddr, SpaceToken, Stride, VirtAddr};
pub use address_space::{AddressSpace, Destroyed, Generation, SpaceId, Translations};
pub use asid::{Asid, MAX_SLOTS};
pub use batch::TlbBatch;
pub use cpu_set::{AtomicCpuSet, Missing};
pub use cpu_state::CpuState;
pub use gather::{Flushed, Scope, TlbGather};
pub use hardware::{Cr3, Event, Features, Hardware, Invpcid, IrqsOff, Late, Pcid};
pub use history::choices::{FamilyShift, History, LazyReferences};
pub use history::presets::PRESETS;
pub use history::tables::{Foreign, Nested, SharedDirty, TableFree};
#[cfg(feature = "history")]
pub use history::{
    choices::{Accounting, Batching, KernelSet, LargePageWalk},
    state::MAX_PAGES,
    stats::{CpuStats, Place, SIZES, SizeRow},
};
pub use kernels::Preset;
pub use knobs::{Knobs, MAX_CEILING_PAGES};
pub use pending::Pending;
pub use policy::{Compare, CpuSetUpkeep, Isolation, Lazy, LocalFlush, Policy, RangeRule, Tags, UserFlush};
pub use reason::Reason;
#[cfg(all(feature = "observe", not(loom)))]
pub use request_matrix::part::Part;
pub use shootdown::{OthersMustFlush, Tables};
pub use text::{KEYS, Key, TextError};
pub use tlb::{Cpu, Tlb};
