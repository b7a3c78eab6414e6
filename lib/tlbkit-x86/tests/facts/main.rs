//! What the crate says of CPUs and passes on, without an instruction that traps.

mod errata;
mod identity;
mod kernel;
