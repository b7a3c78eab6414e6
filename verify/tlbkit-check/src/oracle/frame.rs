//! No CPU reaches a frame that was given back (INV-1, INV-9).

use super::story::{self, finding};
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::buffer::Store;
use crate::machine::tlb::TlbEntry;

pub(super) fn check(machine: &Machine, cpu: usize, entry: &TlbEntry) -> Option<Finding> {
    let is_free = machine.memory.still(entry.frame).is_none();
    is_free.then(|| {
        let text = format!("can reach a frame that was freed: {}", story::describe_entry(machine, entry));
        finding(machine, Oracle::FreedFrame, cpu, text)
    })
}

/// A store reaches memory; only a program's goes through a translation.
pub(super) fn stored(machine: &Machine, store: &Store) -> Option<Finding> {
    let store = store.user?;
    let is_free = machine.memory.still(store.frame).is_none();
    is_free.then(|| {
        let text = format!("a store of space {} to {:#x} reaches a frame that was freed", store.space, store.va);
        finding(machine, Oracle::FreedFrame, machine.current, text)
    })
}
