//! When a call that takes a permission away has returned, no CPU can use it (INV-6, C-40).

use tlbkit_arch::Pte;

use super::story::{self, finding};
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::tlb::TlbEntry;

/// The frame is still mapped there, only with fewer rights.
pub(super) fn check(machine: &Machine, cpu: usize, entry: &TlbEntry) -> Option<Finding> {
    entry.life.promised_by?;
    let now = machine.memory.is_table(entry.pte_at).then(|| Pte(machine.memory.read(entry.pte_at)))?;
    let is_same_frame = now.has(Pte::PRESENT) && machine.memory.name(now.frame().0) == entry.frame;
    is_same_frame.then(|| {
        let text = format!("can use a permission that was taken away: {}", story::describe_entry(machine, entry));
        finding(machine, Oracle::StalePermission, cpu, text)
    })
}
