//! One run: a machine, a policy, a workload and a seed give an outcome.
//!
//! The same four give the same outcome, bit by bit, on any host.

mod audit;
mod outcome;
mod settings;
pub(crate) mod stage;
mod steady;

pub use outcome::{ReasonCounts, RunOutcome, TlbCounters};
pub use settings::Run;
pub use steady::{Start, SteadyRate};
