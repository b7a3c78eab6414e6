//! What a Linux machine did, run through the protocol under other policies.
//!
//! A trace names no address space and, but for flushes, says only what programs asked for. [`read`] turns it into
//! what a kernel must do about it ([`Op`]): run a space, go idle, revoke these translations. [`replay`] does that with
//! the real protocol on a machine without time of its own, in the order of the trace, and counts. With the preset of
//! the kernel that recorded the trace, [`agreement`] compares those counts with what that kernel said of itself: how
//! far the answers for other policies can be trusted.
//!
//! A [`Bill`] says what was done, [`Prices`] what that costs on a machine. What a trace cannot show, the accesses
//! between faults, decides what refilling a TLB costs: that is a range, from nothing to as much as time allowed.
#![forbid(unsafe_code)]

mod agreement;
mod bill;
mod deduce;
mod machine;
mod memory;
mod op;
mod prices;
mod recording;
mod stored;
mod tally;

pub use agreement::{Agreement, Row, agreement};
pub use bill::{Bill, CostItem, CostPart, Estimate, Prices};
pub use deduce::{Coverage, Deduced, Held, Paging, Process, Resident};
pub use machine::{Run, Spared, alike, replay, replay_each, replay_sparing};
pub use op::{Cause, Extent, Fault, Op, OpKind, Party, Pattern, Space, Taken, Who};
pub use recording::{Recording, read, read_about, read_both};
pub use stored::Ops;
pub use tally::{Bounds, Caller, Tally};
