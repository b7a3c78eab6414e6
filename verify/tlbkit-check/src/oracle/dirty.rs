//! A dirty bit that the hardware set is never lost (C-41): live entries are taken by exchange, and what the exchange
//! returned goes back into the tables if the frame does.

use tlbkit_arch::Pte;

use super::story::finding;
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::memory::{FrameName, Use};

/// A frame of which an operation has taken a dirty entry out of the page tables.
pub(super) struct TakenFrame {
    op: u32,
    /// Its first base frame.
    first: FrameName,
    bytes: u64,
}

/// The word at `at`, which held `before`, was changed by the operation `op`: it holds a clean entry of a frame that a
/// dirty one mapped until this operation took that out. `taken` has the frames of those that were taken out so far.
pub(super) fn changed(
    machine: &Machine,
    taken: &mut Vec<TakenFrame>,
    at: u64,
    before: u64,
    op: u32,
) -> Option<Finding> {
    let (old, new) = (Pte(before), Pte(machine.memory.read(at)));
    let is_put_back = |frame: &TakenFrame| {
        let is_within = (frame.first.at..frame.first.at + frame.bytes).contains(&new.frame().0);
        frame.op == op && is_within && machine.memory.still(frame.first).is_some()
    };
    let was_dirty = || old.has(Pte::DIRTY) && old.frame() == new.frame() || taken.iter().any(is_put_back);
    let is_cleaned = !new.has(Pte::DIRTY) && maps_data(machine, new) && was_dirty();
    let is_gone = !maps_data(machine, new) || new.frame() != old.frame();
    if old.has(Pte::DIRTY) && maps_data(machine, old) && is_gone {
        let bytes = if old.has(Pte::LARGE) { 1 << 21 } else { 1 << 12 };
        taken.push(TakenFrame { op, first: machine.memory.name(old.frame().0), bytes });
    }
    is_cleaned.then(|| {
        let text = format!("the entry {:#x} at {at:#x} maps a dirty frame, and does not say so", new.0);
        finding(machine, Oracle::LostDirty, machine.current, text)
    })
}

/// A plain store of `value` is about to reach the word at `at`.
pub(super) fn overwritten(machine: &Machine, at: u64, value: u64) -> Option<Finding> {
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

/// True if `pte` maps a frame of a program, whether or not a program may use it now.
fn maps_data(machine: &Machine, pte: Pte) -> bool {
    let name = || machine.memory.name(pte.frame().0);
    !pte.is_empty() && machine.memory.still(name()) == Some(Use::Data)
}
