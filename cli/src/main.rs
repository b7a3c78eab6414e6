//! The command `tlbkit`.

mod experiment;
mod figure;
mod output;

fn main() {}
