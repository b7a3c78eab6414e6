//! The protocol's arithmetic and choices against references that are too simple to be wrong, on random input.
#![cfg(not(loom))]

mod collapse;
mod cpu_set;
#[path = "../protocol/machine/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the machine serves the tests of the protocol, which use all of it")]
mod machine;
mod pcid;
mod range;
mod slots;
mod text;

use proptest::test_runner::{Config, RngSeed};

/// The same cases each time, and no file for those that failed.
fn config() -> Config {
    Config { cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Config::default() }
}
