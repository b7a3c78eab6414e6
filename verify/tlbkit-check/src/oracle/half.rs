//! Under page-table isolation the user half is covered before the next user instruction (INV-10).

use tlbkit::Pcid;

use super::story::{self, finding};
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::tlb::TlbEntry;

pub(super) fn check(machine: &Machine, cpu: usize, entry: &TlbEntry) -> Option<Finding> {
    entry.life.promised_by?;
    (entry.page.pcid.0 & Pcid::USER_BIT != 0).then(|| {
        let text = format!("its user half was left behind: {}", story::describe_entry(machine, entry));
        finding(machine, Oracle::UserHalf, cpu, text)
    })
}
