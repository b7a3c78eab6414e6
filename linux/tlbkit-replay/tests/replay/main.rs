//! What is read out of a trace, and what policies make of it.

mod common;
mod deduce;
mod hostile;
mod memory;
mod policies;
mod shared;
mod side_by_side;
