//! Published results as data: what a file of `sim/experiments/` says, and how our figures are judged by it.

pub(crate) mod experiment;
pub(crate) mod figure;
pub(crate) mod read;
mod rule;
