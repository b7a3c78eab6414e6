//! Does what a trace asks, with the real protocol, on CPUs that answer at once.
//!
//! There is no time but the trace's: an interrupt is taken where it is sent, so nothing waits and nothing races. What
//! is counted is what the protocol decides, which is the same whenever an answer comes.

mod core;
mod held;
mod page_set;
mod port;
mod side_by_side;
mod state;
mod step;
mod sums;

use crate::deduce::Deduced;
use crate::op::Who;
use crate::tally::Tally;
pub use side_by_side::{Run, alike, replay_each};
pub use state::Spared;
use std::io;
use tlbkit::Policy;
use tlbkit_sim::machine::Machine;

/// Runs what `deduced` asks under `policy` on `machine`.
///
/// # Errors
/// If what was deduced cannot be read from its temporary file.
pub fn replay(deduced: &Deduced, policy: Policy, machine: &Machine) -> io::Result<Tally> {
    let mut tally = Tally::default();
    replay_each(deduced, machine, &[Run::of(policy)], |_, counted| tally = counted)?;
    Ok(tally)
}

/// The same without what `spared` says of each caller.
///
/// # Errors
/// As [`replay`].
pub fn replay_sparing(
    deduced: &Deduced,
    policy: Policy,
    machine: &Machine,
    spared: impl Fn(Who) -> Spared,
) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let run = Run { policy, spared: Some(&spared) };
    replay_each(deduced, machine, &[run], |_, counted| tally = counted)?;
    Ok(tally)
}
