//! Every shape and policy against the slow model.

use super::model::{Flushes, compare};
use super::*;
use crate::mmu::{Index, ReplacementPolicy};

fn shape(sets: usize, ways: usize, policy: ReplacementPolicy) -> ArrayConfig {
    ArrayConfig { policy, ..ArrayConfig::lru(&[PageSize::Small], sets, ways) }
}

#[test]
fn lru_of_all_widths() {
    for ways in [1, 2, 3, 4, 5, 8, 12, 16, 17, 96] {
        compare(shape(4, 4, ReplacementPolicy::Lru), shape(8, ways, ReplacementPolicy::Lru), 30_000, Flushes::Rare);
        compare(shape(1, ways, ReplacementPolicy::Lru), shape(16, 16, ReplacementPolicy::Lru), 30_000, Flushes::Rare);
    }
}

#[test]
fn trees_of_all_widths() {
    for ways in [1, 2, 4, 8, 16, 32, 64] {
        compare(
            shape(2, ways, ReplacementPolicy::TreePlru),
            shape(8, ways, ReplacementPolicy::TreePlru),
            30_000,
            Flushes::Rare,
        );
    }
}

#[test]
fn rotating_trees_behind_the_hashed_index() {
    let stlb = ArrayConfig { index: Index::Xor7, ..shape(128, 12, ReplacementPolicy::RotatingPlru4) };
    compare(shape(16, 4, ReplacementPolicy::TreePlru), stlb, 60_000, Flushes::Rare);
    compare(
        shape(2, 8, ReplacementPolicy::TreePlru),
        shape(4, 12, ReplacementPolicy::RotatingPlru4),
        60_000,
        Flushes::Rare,
    );
}

#[test]
fn stamps_may_run_out() {
    compare(shape(2, 4, ReplacementPolicy::Lru), shape(4, 8, ReplacementPolicy::Lru), 1_500_000, Flushes::Constant);
    compare(
        shape(1, 20, ReplacementPolicy::Lru),
        shape(4, 12, ReplacementPolicy::RotatingPlru4),
        300_000,
        Flushes::Constant,
    );
}
