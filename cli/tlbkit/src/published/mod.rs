//! Published results as data: what a file of `sim/experiments/` says, and how our figures are judged by it.

pub(crate) mod claim;
mod column;
pub(crate) mod expected;
pub(crate) mod experiment;
pub(crate) mod figure;
pub(crate) mod headline;
pub(crate) mod key;
mod place;
pub(crate) mod read;
mod rule;
pub(crate) mod tally;
