//! A PCID that is loaded holds nothing that was fetched for another space (INV-8, C-12, C-13). The top-level tables
//! that CPUs have of their own in a space count as one.

use super::story::{self, finding};
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::ops::home;

pub(super) fn check(machine: &Machine, cpu: usize) -> Option<Finding> {
    let core = &machine.cpus[cpu];
    let is_foreign = |root| home(&machine.roots, root) != home(&machine.roots, core.root);
    let mut entries = core.tlb.entries.iter().filter(|entry| entry.page.pcid == core.pcid && !entry.page.is_global);
    let mut paths = core.tlb.paths.iter().filter(|path| path.reach.pcid == core.pcid);
    let what = match (entries.find(|entry| is_foreign(entry.root)), paths.find(|path| is_foreign(path.root))) {
        (Some(entry), _) => story::describe_entry(machine, entry),
        (None, Some(path)) => format!("a path to a level-{} table, fetched in step {}", path.reach.level, path.fetched),
        (None, None) => return None,
    };
    let text = format!("root {:#x} was loaded under PCID {:#x}, which holds: {what}", core.root.at >> 12, core.pcid.0);
    Some(finding(machine, Oracle::ForeignSpace, cpu, text))
}
