//! The adversarial machine: the real protocol and real page tables on hardware that may do all that x86-64 allows at
//! any time, and nothing else.
//!
//! - [`program`] says what the CPUs do; [`campaign`] runs it, seed after seed or exhaustively within a bound.
//! - `machine` keeps everything that each CPU *could* have cached, not one guess of it; so a run's only chance events
//!   are the order of steps, the draining of stores and the arrival of interrupts.
//! - `oracle` looks at what can be reached, one property a file; it knows the contract of the page tables' calls and
//!   nothing of how the protocol keeps it.
//! - [`schedule`] decides what happens next, and shrinks a failing run; [`two_columns`] and [`chrome_trace`] show it.
//! - [`bare`] is the machine alone, for its own tests.
//!
//! One seed, one run, the same bytes on any host: no host address and no order of a hash map decides anything.
//!
//! What is left out: instruction fetches (they share the entries of loads here), nested paging, protection keys, SMEP
//! and SMAP; and what a compiler may reorder: fences that x86-64 does not need are proven by loom, not here.
#![deny(unsafe_code)]

pub mod bare;
pub mod campaign;
mod digest;
mod finding;
pub mod json;
mod machine;
mod oracle;
mod policies;
pub mod program;
mod quiet;
mod run;
pub mod schedule;
mod timeline;
mod trace;

pub use finding::{Finding, Oracle};
pub use machine::MachineConfig;
pub use machine::errata::{Errata, Erratum};
pub use run::{Outcome, Scenario};
pub use timeline::{Line, LineKind, Log, two_columns};
pub use trace::chrome_trace;

/// Runs `scenario` under the random schedule of `seed`.
#[must_use]
pub fn random(scenario: &Scenario, seed: u64) -> Outcome {
    run::run(scenario, Box::new(schedule::random::RandomChoice::new(seed)), timeline::Log::none())
}
