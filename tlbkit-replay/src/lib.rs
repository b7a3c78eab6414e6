//! What a Linux machine did, run through the protocol under other policies.
//!
//! A trace names no address space and, but for flushes, says only what programs asked for. [`deduce`] turns it into
//! what a kernel must do about it ([`Op`]): run a space, go idle, revoke these translations. [`replay`] does that with
//! the real protocol on a machine without time of its own, in the order of the trace, and counts. With the preset of
//! the kernel that recorded the trace, [`agreement`] compares those counts with what that kernel said of itself: how
//! far the answers for other policies can be trusted.
//!
//! What a trace cannot show, the accesses between faults, decides what refilling a TLB costs: that is a range.
#![forbid(unsafe_code)]

mod agreement;
mod cost;
mod deduce;
mod machine;
mod op;
mod tally;

pub use agreement::{Agreement, agreement};
pub use cost::{Cycles, Range};
pub use deduce::{Deduced, deduce};
pub use machine::replay;
pub use op::{Cause, Op, Space, Step};
pub use tally::{Tally, Who};
