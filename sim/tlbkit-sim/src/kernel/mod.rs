//! The simulated kernel, on top of the machine: tasks, a run queue per CPU, processes, channels, memory, and the system
//! calls that programs make.
//!
//! | file | what |
//! |---|---|
//! | `calls` | [`tlbkit_workloads::Os`], and the tasks that call it |
//! | `habits` | what the protocol's policy says nothing of |
//! | `window` | reading files through windows |
//! | `lists` | which pages wait to be put into lists, and when the lock of the lists is taken |
//! | `programs` | a program's loads, stores and computing |
//! | `sched` | switching, blocking, waking, idling |
//! | `spaces` | making and ending processes |
//! | `memory`, `phys` | what using physical memory costs, and physical memory |
//! | `state` | the kernel's state, and how a run ends |
//! | `regions`, `sleeping` | the lock of a space's regions, and how tasks wait for it |
//! | `single` | the locks of single regions |
//! | `holding` | what a call or a fault holds of them |
//! | `queues` | run queues, as the scheduling rules see them |
//! | `task`, `task_index` | processes and tasks, and how tasks are named |

mod calls;
mod cpu_bits;
mod habits;
mod holding;
mod lists;
mod memory;
mod phys;
mod programs;
mod queues;
mod regions;
mod sched;
mod single;
mod sleeping;
mod spaces;
mod state;
mod task;
mod task_index;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use habits::Habits;
pub use habits::{FileReads, RegionLocks};
pub(crate) use lists::PageLists;
pub(crate) use phys::Phys;
pub use phys::Pressure;
pub use regions::RegionWaits;
pub(crate) use state::Kernel;
