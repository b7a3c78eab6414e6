//! A deterministic simulated x86-64 multiprocessor that runs the real protocol, and says what everything cost.
//!
//! [`run::Run`] puts a [`Machine`](tlbkit_machine::Machine), a policy and a workload together and gives a
//! [`run::RunOutcome`]. Nothing of the host shows in it: one seed, one result.
//!
//! | module | what |
//! |---|---|
//! | [`mmu`] | TLB arrays, page walker, what each instruction drops |
//! | `code` | counted instructions of a kernel's code, by its calls |
//! | [`statistics`] | means, and how far they may be off |
//! | `topology` | where CPUs are |
//! | [`lines`] | cache lines that CPUs share |
//! | [`observer`] | what a run cost, and what perfect knowledge would have left out |
//! | `multiprocessor` | CPUs in time: coroutines, interrupts, the protocol's door; it knows no kernel |
//! | `kernel` | on top of it: tasks, scheduler, processes, system calls, memory |
//! | [`run`] | one run from beginning to end |
//!
//! Each uses only those above it, but for tests, and small files that all may use. The observer is told what happens
//! and changes nothing.
#![deny(unsafe_code)]

mod code;
mod error;
mod host;
mod keep;
mod kernel;
pub mod lines;
pub mod mmu;
mod multiprocessor;
pub mod observer;
pub mod run;
pub mod statistics;
mod topology;

pub use code::{Code, Sweep};
pub use error::RunError;
pub use kernel::{FileReads, KernelSettings, MmapLockWaits, PerVmaLocks, Pressure};
pub use multiprocessor::{Defect, ParavirtualFlush};
pub use run::{Run, RunOutcome};
