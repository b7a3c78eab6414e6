//! Choosers, which decide what happens next.
//!
//! The first of the actions is always the least eventful: the CPU that executes goes on. So a schedule is described by
//! the choices that are not 0, and the fewer there are the simpler it is.

pub(crate) mod exhaustive;
pub(crate) mod pct;
pub(crate) mod random;
pub(crate) mod script;
pub mod shrink;

use crate::machine::action::{Action, Turn};

/// Decides.
pub(crate) trait Chooser {
    /// Which of the actions, of which there are at least two, happens. `state` is a digest of the machine's state, if
    /// asked for.
    fn choose(&mut self, actions: &[Action], turn: Turn, state: u64) -> usize;

    /// Which of `n` outcomes a step has, 2 at least: which cached translation an access uses.
    fn outcome(&mut self, n: usize) -> usize;

    /// True if states are compared: what CPUs learn is recorded.
    fn records_states(&self) -> bool {
        false
    }

    /// True if the next choice needs the digest of the state.
    fn wants_state(&self) -> bool {
        false
    }

    /// True if this run is of no more interest.
    fn has_given_up(&self) -> bool {
        false
    }
}
