//! A flush of the kernel's addresses reaches every CPU and, where they are global, every PCID; also when it was
//! collapsed with others (INV-11, C-08, C-35).

use super::story::{self, finding};
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::tlb::TlbEntry;

pub(super) fn check(machine: &Machine, cpu: usize, entry: &TlbEntry) -> Option<Finding> {
    entry.life.promised_by?;
    (entry.page.is_global || entry.page.start.is_kernel()).then(|| {
        let text = format!("a kernel translation survived its flush: {}", story::describe_entry(machine, entry));
        finding(machine, Oracle::GlobalEntry, cpu, text)
    })
}
