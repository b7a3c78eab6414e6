//! Runs what a Linux machine did through the protocol again, under other policies.
//!
//! A trace does not name address spaces and, flushes aside, says only what programs asked for. [`Recording::read`]
//! deduces from that what a kernel had to do ([`Op`]): run a space, go idle, revoke translations. [`replay`] does this
//! with the real protocol, in the order of the trace, on a machine that has no time, and counts what happens.
//! [`agreement`] compares the counts of a replay under the preset of the recording kernel with what that kernel
//! recorded itself. This shows how far the answers for other policies can be trusted.
//!
//! A [`Bill`] says what was done, and [`Prices`] say what that costs on a machine. What it costs to refill a TLB
//! depends on the accesses between page faults, which no trace shows. So that cost is a range, from nothing to as much
//! as the time allowed.
#![forbid(unsafe_code)]

mod agreement;
mod bill;
mod deduce;
mod machine;
mod op;
mod prices;
mod recording;
mod tally;

pub use agreement::{Agreement, ComparedCount, agreement};
pub use bill::{Bill, CostItem, CostPart, Estimate, Prices};
pub use deduce::{Coverage, Deduced, Held, Process, Resident};
pub use machine::replay;
pub use op::{Caller, Cause, Extent, Op, OpKind, Party, Pattern, Space, Taken};
pub use recording::Recording;
pub use tally::{Bounds, CallerCost, Tally};
