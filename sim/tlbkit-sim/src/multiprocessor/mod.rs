//! The machine: CPUs, time, cache lines, interrupts, and the protocol's door to them. It knows no kernel.
//!
//! Each CPU has its own clock. The one that is furthest behind runs, ahead of the others as far as nothing that it does
//! can matter to them: a touch of its own memory until an interrupt that was not sent yet could arrive, a cache hit as
//! long as a transfer takes, a locked operation or a page-table store not at all. There it yields to whoever is now
//! behind. A line that has not moved for long is taken to stay: a hit in it may run ahead like a touch, and with
//! interrupts off to their end, so whoever takes such a line away may see it as much too early, once. One host thread,
//! no host clock, ties by CPU number: one seed, one result.
//!
//! | file | what |
//! |---|---|
//! | `port` | [`tlbkit::Hardware`] of one CPU, and the handler of flush interrupts |
//! | `interrupts` | sending interrupts |
//! | `accesses` | the protocol's atomics and the accesses of programs, charged |
//! | `turns` | whose turn it is; how CPUs yield, sleep and take interrupts |
//! | `system` | the CPUs, and what they share |
//! | `streak` | accesses that need not be looked up |
//! | `processor` | one CPU |
//! | `spin` | spin loops that are slept through |
//! | `agenda` | who is next |
//! | `fiber` | stackful coroutines |
//! | `prefetch` | the next CPU's lines into the host's caches |
//! | `defect` | machines that lose something |
//! | `costs` | the machine file in integers |

mod accesses;
mod agenda;
mod costs;
mod defect;
mod fiber;
mod interrupts;
mod port;
mod prefetch;
mod processor;
mod spin;
mod streak;
mod system;
#[cfg(test)]
mod tests;
mod turns;

pub(crate) use accesses::observe;
pub(crate) use agenda::NEVER;
pub(crate) use fiber::{Fiber, Progress, suspend};
pub(crate) use port::{Port, answer_flush};
pub(crate) use prefetch::prefetch;
pub(crate) use processor::{Arrival, Ring};
pub(crate) use system::Multiprocessor;

pub use defect::Defect;
