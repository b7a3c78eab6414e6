//! Does what a trace asks of a kernel, with the real protocol, on CPUs that answer at once.
//!
//! The only time is that of the trace. A CPU takes an interrupt at the moment at which it is sent, so nothing waits and
//! nothing races. The counts are of what the protocol decides, and this does not depend on when an answer comes.

mod core;
mod held;
mod page_set;
mod port;
mod side_by_side;
mod state;
mod step;
mod sums;

use crate::deduce::Deduced;
use crate::op::Caller;
use crate::tally::Tally;
pub use side_by_side::{Run, alike, replay_each};
pub use state::Spared;
use std::io;
use tlbkit::Policy;
use tlbkit_machine::Machine;

/// Does what `deduced` asks under `policy` on `machine`, and returns what was counted.
///
/// # Errors
/// If the operations cannot be read from their temporary file.
pub fn replay(deduced: &Deduced, policy: Policy, machine: &Machine) -> io::Result<Tally> {
    let mut tally = Tally::default();
    replay_each(deduced, machine, &[Run::of(policy)], |_, counted| tally = counted)?;
    Ok(tally)
}

/// Replays as [`replay`] does, without the part of each caller's work that `spared` names.
///
/// # Errors
/// As [`replay`].
pub fn replay_sparing(
    deduced: &Deduced,
    policy: Policy,
    machine: &Machine,
    spared: impl Fn(Caller) -> Spared,
) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let run = Run { policy, spared: Some(&spared) };
    replay_each(deduced, machine, &[run], |_, counted| tally = counted)?;
    Ok(tally)
}
