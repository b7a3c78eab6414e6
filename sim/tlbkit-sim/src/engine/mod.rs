//! Time: which simulated CPU acts next, and what everything costs.
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
//! | `world` | everything of one run, and how CPUs yield and sleep |
//! | `agenda` | who is next |
//! | `fiber` | stackful coroutines |
//! | `fetch` | the next CPU's lines into the host's caches |
//! | `core` | one CPU |
//! | `observe` | the protocol's atomics, charged by the cache-line model |
//! | `spin` | spin loops that are slept through |
//! | `port` | [`tlbkit::Hardware`] of one CPU |
//! | `interrupt` | sending and taking interrupts |
//! | `ledger` | cycles by cause |
//! | `costs` | the machine file in integers |

mod agenda;
pub(crate) mod core;
pub(crate) mod costs;
mod fetch;
pub(crate) mod fiber;
pub(crate) mod interrupt;
pub(crate) mod ledger;
pub(crate) mod observe;
pub(crate) mod port;
mod spin;
#[cfg(test)]
mod tests;
pub(crate) mod world;

pub use self::core::IpiCounters;
pub use self::ledger::{Cause, Class, Ledger, Spent};
