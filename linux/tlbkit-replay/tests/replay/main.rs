//! What is read out of a trace, and what policies make of it.

mod common;
mod deduce;
mod hostile;
mod policies;
mod shared;
