//! What programs do to an address space: published benchmarks as streams of system calls and memory accesses.
//!
//! A [`Workload`] is a benchmark with its parameters; a [`Task`] is one process or thread of it. A task runs against
//! [`Os`], and so unchanged on a simulated kernel and on a real one. Faults, copies and flushes are consequences and
//! appear nowhere here.
//!
//! ```
//! let mut workload = tlbkit_workloads::by_name("ebizzy-m").expect("a known name");
//! workload.set("threads=8").expect("a known parameter");
//! let first = workload.first_task();
//! assert_eq!(first.part.role, 0);
//! ```
//!
//! Two rules hold in every stream. Each read says what the page must hold ([`os::read_expecting`]), so that a lost
//! flush shows as a wrong value. And a number of rounds of 0 means "until the run is over": a kernel must let
//! [`Os::is_over`], once true for a task, be true for every task that this task wakes afterwards.
//!
//! Where to look: `registry` has the names, `parameters` the `key=value` settings, `team` what several tasks share
//! (start, ring, stop), and each benchmark has a separate file. `calls` and `scheduling` are for kernels: what a call
//! means, and the rules by which tasks are given CPUs, so that two kernels run a workload alike.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
mod parameters;
mod buildsh;
pub mod calls;
mod compile;
mod context_switch;
mod ebizzy;
mod flush_sizes;
mod isolated;
mod lat_ctx;
mod madvise;
mod mapbench;
mod memcache;
mod munmap;
mod netperf;
pub mod os;
pub mod pattern;
mod pingpong;
mod reclaim;
mod registry;
pub mod scheduling;
mod team;
mod tlb_flush;
mod workload;

pub use buildsh::BuildSh;
pub use compile::Compile;
pub use context_switch::ContextSwitch;
pub use ebizzy::{Allocator, Ebizzy};
pub use flush_sizes::{FLUSH_SIZES, FlushSize, FlushSizes, draw_flush_size, flush_size_weight};
pub use isolated::Isolated;
pub use lat_ctx::LatCtx;
pub use madvise::Madvise1;
pub use mapbench::{MapBench, Sharing};
pub use memcache::Memcache;
pub use munmap::Munmap1;
pub use netperf::Netperf;
pub use os::{Os, Part};
pub use parameters::{Parameter, ParameterError, Parameters};
pub use pingpong::PingPong;
pub use reclaim::Lookups;
pub use registry::{by_name, describe, names};
pub use tlb_flush::{TlbFlush, TlbFlushMemory};
pub use workload::{Task, Workload};
