//! When a call that revokes translations has returned, no CPU can use one (INV-6).

use super::story::{self, finding};
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::tlb::TlbEntry;

pub(super) fn check(machine: &Machine, cpu: usize, entry: &TlbEntry) -> Option<Finding> {
    entry.life.promised_by.map(|_| {
        let text = format!("can use a revoked translation: {}", story::describe_entry(machine, entry));
        finding(machine, Oracle::StaleTranslation, cpu, text)
    })
}
