//! The interface that every reader of traces has.

use crate::error::{Error, Health};
use crate::event::Event;
use crate::names::Names;

/// A stream of events in order of time. The memory that it takes does not grow with the length of the trace.
pub trait Source {
    /// The next event, or none at the end of the trace.
    ///
    /// # Errors
    ///
    /// If the rest of the trace cannot be read. The error comes after the last event that could be read, so a caller
    /// can still use the events before it, and should say that the trace was cut. Damage after which reading goes on is
    /// no error: [`Source::health`] tells of it.
    fn next_event(&mut self) -> Result<Option<Event>, Error>;

    /// The texts and call stacks to which the events so far refer by number.
    fn names(&self) -> &Names;

    /// What was lost or unusable of the trace so far.
    fn health(&self) -> &Health;
}
