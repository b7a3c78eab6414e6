//! The TLB subsystem of an x86-64 kernel.
//!
//! Every CPU caches translations, and the page tables that they came from change. A kernel has to make sure that no CPU
//! uses a translation after it was taken away, without interrupting every CPU for every change and without throwing
//! away what is still valid. This crate decides which CPU has to flush what, and when. It executes nothing itself:
//! [`Hardware`] is its only interface to a machine, so the same source runs in kernels, on a simulated multiprocessor
//! and under model checkers.
//!
//! # The rule
//!
//! Unhook, flush everywhere, free. Everything else is there to make the middle step rare and cheap.
//!
//! # Where to read
//!
//! | folder | subject | its counterpart in Linux |
//! |---|---|---|
//! | `space/` | address spaces, TLB generations, CPU sets, and how a space ends | the TLB part of `mm_struct` |
//! | `cpu/` | what a CPU keeps and publishes, its ASIDs, hotplug | `cpu_tlbstate` |
//! | `switch/` | loading a space, lazy TLB mode, page-table isolation | `switch_mm_irqs_off` |
//! | `flush/` | from a changed PTE to a freed frame: gather, batch, shootdown | `flush_tlb_mm_range`, `mmu_gather` |
//! | `policy/` | the choices on which kernels differ, as data | boot parameters, debugfs, compile-time constants |
//!
//! Each folder begins with a page (`mod.rs`) that states its rule and, where it has one, draws its race. `flush/mod.rs`
//! and `switch/mod.rs` are the ones to read first.
//!
//! # Invariants, cited by number wherever they are upheld
//!
//! - INV-1 unhook, flush everywhere, free; for page-table pages as for frames. (`flush/gather.rs`)
//! - INV-2 a CPU that joins a space and one that takes translations away cannot both miss the other. (`space/mod.rs`)
//! - INV-3 while an ASID names a space, its generation never exceeds the space's; neither falls; an id is never reused.
//!   (`cpu/asid.rs`)
//! - INV-4 pages are flushed one by one only from generation g to g+1, and only if g+1 is the newest; otherwise
//!   everything is flushed. Under a PCID that all CPUs share, or for kernel addresses, which have no generations, they
//!   are only if no deferred flush is outstanding. (`flush/local.rs`, `flush/owed.rs`)
//! - INV-5 a flush of a space does not interrupt CPUs in lazy TLB mode, unless it frees page-table pages, has global
//!   scope or trims the CPU set, or the policy wants them interrupted. (`flush/shootdown.rs`)
//! - INV-6 when a flush returns, or the wait for an issued one, no CPU can use an old translation, and none walks an
//!   old page table. (`flush/shootdown.rs`, `flush/mailboxes.rs`)
//! - INV-7 a waiting CPU still answers; waiting with interrupts off is an error, not a hang; polling an issued flush,
//!   by `Pending::poll` or by `is_done` and `answer`, may be done with interrupts off. (`flush/wait.rs`,
//!   `flush/pending.rs`)
//! - INV-8 PCID 0 never names a space; kernel and user PCID differ in one bit; a recycled ASID is flushed before use.
//!   (`cpu/asid.rs`)
//! - INV-9 frames in a gather are unreachable until it is flushed, in an issued one until it is waited for, in a
//!   retired one until its grace period is over, and in a deferred batch until its flush. (`flush/gather.rs`,
//!   `flush/pending.rs`, `flush/retire.rs`, `flush/defer.rs`)
//! - INV-10 under isolation both halves are flushed before the next user instruction. (`switch/isolation.rs`)
//! - INV-11 a flush that was asked for with global scope keeps it when it becomes a flush of everything.
//!   (`flush/gather.rs`, `flush/local.rs`)
//! - INV-12 a switch writes CR3 with the no-flush bit only if the ASID's generation equals the space's, read after this
//!   CPU joined the CPU set; or under a PCID that all CPUs share, which INVLPGB keeps current. (`switch/mod.rs`,
//!   `space/shared.rs`)
//!
//! # Use
//!
//! ```
//! # use tlbkit::*;
//! fn unmap_one_page<H: Hardware>(cpu: Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, va: VirtAddr, frame: u64) {
//!     let mut gather = TlbGather::new(Translations::OfSpace(space), Vec::new());
//!     // 1. unhook: clear the page-table entry, then
//!     gather.unmap(&cpu, va, Stride::Page4K, Scope::NonGlobal, Reason::RemovePte, frame);
//!     // 2. flush everywhere, 3. free what comes out
//!     for frame in gather.flush(&cpu).into_frames() {
//!         println!("frame {frame} is free");
//!     }
//! }
//! ```
//!
//! A kernel calls [`Cpu::bring_up`] when a CPU starts, [`Cpu::switch_to`] in its context switch, [`Cpu::enter_lazy`]
//! when the CPU goes idle, [`Cpu::answer`] in the handler of the shootdown IPI, and [`TlbGather`] whenever it takes a
//! translation away. The space of a task must live from [`Cpu::switch_to`] until the call that leaves it returns;
//! [`Cpu::destroy`] deals with CPUs that hold it in lazy TLB mode.
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
pub use flush::defer::Deferred;
pub use flush::gather::{Flushed, Scope, TlbGather};
pub use flush::pending::Pending;
pub use flush::retire::{GracePeriods, Passed, Retired};
pub use flush::sharers::{Reach, Sharers};
pub use flush::shootdown::OthersMustFlush;
pub use flush::spared::Entered;
pub use hardware::{
    Cr3, Event, Features, Hardware, HostExtent, HostFlush, Invlpgb, Invpcid, IrqsOff, KernelFlushes, Late, Pcid, Tables,
};
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
    Acknowledgement, Broadcast, Compare, CpuSetUpkeep, Directories, Isolation, Knobs, Lazy, LocalFlush,
    MAX_CEILING_PAGES, Policy, Preset, RangeRule, Reason, Reclaim, Tags, Unaccessed, Unmapping, UserFlush,
};
pub use space::cpu_set::{AtomicCpuSet, Missing};
pub use space::{AddressSpace, Destroyed, Generation, SpaceId, Translations};
