//! The observer: what a run cost, and what perfect knowledge would have left out.
//!
//! Machine and kernel tell it what happens and need not know what becomes of it. It changes nothing: without it a run
//! would take the same cycles.
//!
//! | file | what |
//! |---|---|
//! | `ledger` | cycles by cause, and by who was running |
//! | `events` | the observer itself: what it is told, and its totals |
//! | `flushes` | counters of flushes, and flushes by size |
//! | `clairvoyant` | whether a CPU needs an interrupt, as only somebody who sees every TLB can say |
//! | `walkers` | which CPUs have walked what, and so could hold it |
//! | `bounds` | what each idea could save at most |
//! | `samples` | the score as time goes by |

mod bounds;
mod clairvoyant;
mod events;
mod flushes;
mod ledger;
mod samples;
mod walkers;

pub use bounds::Bounds;
pub(crate) use bounds::Moment;
pub(crate) use clairvoyant::Intent;
pub use events::{IpiCounters, KernelCounters};
pub(crate) use events::{KernelEvent, Observer};
pub use flushes::{FlushCounters, FlushSize, Needed};
pub(crate) use ledger::LineUse;
pub use ledger::{Cause, Class, Ledger, Spending, Spent};
pub use samples::Sample;
pub(crate) use walkers::Walk;
