//! The simulated kernel, on top of the machine: tasks, a run queue per CPU, processes, channels, memory, and the system
//! calls that programs make.
//!
//! | file | what |
//! |---|---|
//! | `calls` | [`tlbkit_workloads::Os`], and the tasks that call it |
//! | `settings` | how kernels differ in what the protocol's policy says nothing of |
//! | `window` | reading files through windows |
//! | `lru_lists` | which pages wait to be put into the LRU lists, and when the lock of the lists is taken |
//! | `programs` | a program's loads, stores and computing |
//! | `sched` | switching, blocking, waking, idling |
//! | `spaces` | making and ending processes |
//! | `memory`, `phys` | what using physical memory costs, and physical memory |
//! | `state` | the kernel's state, and how a run ends |
//! | `mmap_lock`, `mmap_lock_wait` | the lock of all regions of a space, and how tasks wait for it |
//! | `vma_locks` | the locks of single regions |
//! | `held_locks` | which of these locks a call or a fault holds |
//! | `reclaim` | memory that is too small for files |
//! | `run_queues` | run queues, as the scheduling rules see them |
//! | `task` | processes and tasks |

mod calls;
mod cpu_bits;
mod held_locks;
mod lru_lists;
mod memory;
mod mmap_lock;
mod mmap_lock_wait;
mod phys;
mod programs;
mod reclaim;
mod run_queues;
mod sched;
mod settings;
mod spaces;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod vma_locks;
mod window;

pub use mmap_lock::MmapLockWaits;
pub(crate) use phys::Phys;
pub use phys::Pressure;
pub use settings::{FileReads, KernelSettings, PerVmaLocks};
pub(crate) use state::Kernel;

/// How the kernel names a task: tasks are counted from 0 as they start. The locks use it, which are below the tasks
/// that use the locks.
type TaskIndex = u32;
