//! A page holds what its owner wrote to it, or at least what a program may have left there.

use super::story::finding;
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::memory::POISON;
use crate::machine::values::owner;

/// The CPU that executes has loaded `value`.
pub(super) fn check(machine: &Machine, space: usize, va: u64, value: u64) -> Option<Finding> {
    let text = match machine.values.expected(space, va) {
        Some(expected) if expected == value => return None,
        Some(expected) => format!("space {space} reads {value:#x} at {va:#x}, where {expected:#x} was written"),
        None if machine.values.may_hold(space, va, value) => return None,
        None => format!("space {space} reads {value:#x} at {va:#x}: {}", whose(value)),
    };
    Some(finding(machine, Oracle::Value, machine.current, text))
}

fn whose(value: u64) -> String {
    match owner(value) {
        _ if value == POISON => "what a frame holds that was given back".to_owned(),
        (Some(writer), page) => format!("what space {writer} wrote at {page:#x}"),
        (None, _) => "no program wrote it".to_owned(),
    }
}
