//! The adversarial machine: the real protocol and real page tables on hardware that may do all that x86-64 allows.
#![deny(unsafe_code)]

pub mod bare;
pub mod campaign;
mod digest;
pub mod json;
mod machine;
mod oracle;
pub mod program;
mod quiet;
mod run;
pub mod schedule;
mod timeline;
mod trace;

pub use machine::Config;
pub use machine::errata::{Errata, Erratum};
pub use oracle::{Finding, Oracle};
pub use run::{Outcome, Setup};
pub use timeline::{Kind, Line, Log, two_columns};
pub use trace::chrome_trace;

/// Runs `setup` under the random schedule of `seed`.
#[must_use]
pub fn random(setup: &Setup, seed: u64) -> Outcome {
    run::run(setup, Box::new(schedule::random::RandomChoice::new(seed)), timeline::Log::none())
}
