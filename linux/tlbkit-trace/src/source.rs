//! What every reader of traces offers to those who use one.

use crate::error::{Error, Health};
use crate::event::Event;
use crate::names::Names;

/// A stream of events in order of time, in memory that does not grow with the file.
pub trait Source {
    /// The next event; none at the end.
    ///
    /// # Errors
    ///
    /// Where the file cannot be understood any further, after the last event that could be: those before it are
    /// worth a result that says so. What only leaves a hole is told by [`Source::health`].
    fn next_event(&mut self) -> Result<Option<Event>, Error>;

    /// The texts and stacks that the events so far name.
    fn names(&self) -> &Names;

    /// How complete the events so far are.
    fn health(&self) -> &Health;
}
