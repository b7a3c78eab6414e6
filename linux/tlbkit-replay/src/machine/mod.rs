//! Does what a trace asks of a kernel, with the real protocol, on CPUs that answer at once.
//!
//! The only time is that of the trace. A CPU takes an interrupt at the moment at which it is sent, so nothing waits and
//! nothing races. The counts are of what the protocol decides, and this does not depend on when an answer comes.

mod core;
mod held;
mod page_set;
mod port;
mod state;
mod step;

use crate::prices::Capacity;
use crate::recording::Recording;
use crate::tally::Tally;
use state::{Memory, Replay};
use tlbkit::Policy;
use tlbkit_machine::Machine;
use tlbkit_trace::Error;

/// Does what the recorded trace asks on `machine`, once under each of `policies`, and returns what each of them
/// counted, in their order. The trace is read once for all of them.
///
/// # Errors
/// If the trace cannot be opened again.
pub fn replay(recording: &Recording, policies: &[Policy], machine: &Machine) -> Result<Vec<Tally>, Error> {
    let capacity = Capacity::new(machine);
    let memories: Vec<Memory> = policies.iter().map(|_| Memory::new(&recording.deduced)).collect();
    let new = |(&policy, memory)| Replay::new(&recording.deduced, capacity, policy, memory);
    let replays: Vec<Replay<'_>> = policies.iter().zip(&memories).map(new).collect();
    recording.ops(|op| replays.iter().for_each(|replay| replay.step(op)))?;
    Ok(replays.into_iter().map(|replay| replay.finish(&recording.deduced)).collect())
}
