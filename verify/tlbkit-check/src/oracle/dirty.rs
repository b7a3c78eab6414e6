//! A dirty bit that the hardware set is never overwritten unseen (C-41): live entries are taken by exchange.

use tlbkit_arch::Pte;

use super::story::finding;
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;

/// A plain store of `value` is about to reach the word at `at`.
pub(crate) fn check(machine: &Machine, at: u64, value: u64) -> Option<Finding> {
    if !machine.memory.is_table(at) {
        return None;
    }
    let (old, new) = (Pte(machine.memory.read(at)), Pte(value));
    let is_live =
        old.has(Pte::PRESENT | Pte::DIRTY) && machine.memory.still(machine.memory.name(old.frame().0)).is_some();
    let is_kept = new.has(Pte::DIRTY) && new.frame() == old.frame();
    (is_live && !is_kept).then(|| {
        let text = format!("a plain store of {value:#x} overwrites the dirty entry {:#x} at {at:#x}", old.0);
        finding(machine, Oracle::LostDirty, machine.current, text)
    })
}
