//! A deterministic simulated x86-64 multiprocessor that runs the real protocol, and says what everything cost.
//!
//! [`run::Run`] puts a [`machine::Machine`], a policy and a workload together and gives an [`run::Outcome`]. Nothing of
//! the host shows in it: one seed, one result.
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | CPU models as data |
//! | [`mmu`] | TLB arrays, page walker, what each instruction drops |
//! | [`lines`] | cache lines that CPUs share |
//! | [`engine`] | time, interrupts, coroutines, the protocol's door |
//! | [`kernel`] | tasks, scheduler, processes, system calls, memory |
//! | [`run`] | one run from beginning to end |
#![deny(unsafe_code)]

pub mod engine;
pub mod kernel;
pub mod lines;
pub mod machine;
pub mod mmu;
pub mod run;

pub use run::{Outcome, Run, RunError};
