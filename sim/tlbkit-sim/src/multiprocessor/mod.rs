//! The machine: CPUs, time, cache lines, interrupts, and the protocol's door to them. It knows no kernel.
//!
//! Each CPU has its own clock. The CPU whose clock is furthest behind runs. It may run ahead of the others only as far
//! as nothing that it does can matter to them; then it yields to the CPU that is furthest behind now. How far that is
//! depends on what it does:
//!
//! - A touch of the CPU's own memory may run ahead until an interrupt that has not been sent yet could arrive.
//! - A hit in a shared cache line may run ahead by the time that a transfer of the line takes.
//! - A locked operation or a store to a page table may not run ahead at all.
//! - A line that has not moved for a long time is expected to stay. A hit in it may run ahead as a touch may; with
//!   interrupts off, until they are on again. A CPU that takes such a line away may therefore see it that much too
//!   early, once.
//!
//! There is one host thread and no host clock, and the lower CPU number decides a tie: one seed gives one result.
//!
//! | file | what |
//! |---|---|
//! | `port` | [`tlbkit::Hardware`] of one CPU, and the handler of flush interrupts |
//! | `interrupts` | sending interrupts |
//! | `apic` | how many commands a sender writes, and how long it waits |
//! | `accesses` | the protocol's atomics and its PAUSE |
//! | `line_access` | one access to a shared cache line, charged |
//! | `loads` | loads and stores by address, charged |
//! | `turns` | whose turn it is; how CPUs yield, sleep and take interrupts |
//! | `system` | the CPUs, and what they share |
//! | `streak` | accesses that need not be looked up |
//! | `tally` | what the machine itself counts: a second count beside the observer's, for the audit |
//! | `call_queues`, `call_queue_accesses` | another kernel's queues of calls, and their lines in place of ours |
//! | `lru_lock`, `lru_accesses` | the lock of a node's LRU lists, and work under it |
//! | `linux_lines` | the names of Linux's lines |
//! | `processor` | one CPU |
//! | `spin` | spin loops that are slept through |
//! | `agenda` | who is next |
//! | `fiber` | stackful coroutines |
//! | `frames` | where on its stack each CPU continues, for the host's caches |
//! | `defect` | machines that lose something |
//! | `overcommit` | a host that takes CPUs away |
//! | `noise` | what varies with the seed |
//! | `costs` | the machine file in integers |
//! | `cold` | code and data that were pushed out of the caches |

mod accesses;
mod agenda;
mod apic;
mod call_queue_accesses;
mod call_queues;
mod cold;
mod costs;
mod defect;
mod fiber;
mod interrupts;
mod line_access;
mod linux_lines;
mod loads;
mod lru_accesses;
mod lru_lock;
mod noise;
mod overcommit;
mod port;
mod processor;
mod spin;
mod streak;
mod system;
mod tally;
#[cfg(test)]
mod tests;
mod turns;

pub(crate) use accesses::observe;
pub(crate) use agenda::NEVER;
pub(crate) use cold::CallKind;
pub(crate) use fiber::{Fiber, Progress, suspend};
pub(crate) use port::{Port, answer_flush};
pub(crate) use processor::{Arrival, Ring};
pub(crate) use system::{MachineSettings, Multiprocessor};
pub(crate) use tally::InterruptTally;

pub use defect::Defect;
pub use overcommit::ParavirtualFlush;
