//! No CPU walks a page table that was given back, lazily or not (INV-6, C-20, C-21), and no code that interrupts would
//! have to wait for reads one (C-23).

use tlbkit::{PAGE_BYTES, Pcid};

use super::story::finding;
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::core::Core;
use crate::machine::memory::{FrameName, Use};

/// Looks at the loaded root and at every path cached for the loaded PCID.
pub(super) fn check(machine: &Machine, cpu: usize) -> Option<Finding> {
    let core = &machine.cpus[cpu];
    if !core.walks() {
        return None;
    }
    if machine.memory.still(core.root) != Some(Use::Table) {
        return Some(report(machine, cpu, "its loaded top-level table was freed", core.root, machine.step));
    }
    let paths = core.tlb.paths.iter().filter(|path| path.reach.pcid == core.pcid);
    let mut freed = paths.filter(|path| machine.memory.still(path.table) != Some(Use::Table));
    freed.next().map(|path| {
        let what = format!("a cached path leads to a freed level-{} table", path.reach.level);
        report(machine, cpu, &what, path.table, path.fetched)
    })
}

/// A walk to `va` has read an entry of a freed table.
pub(super) fn walked(machine: &Machine, cpu: usize, va: u64, level: u32, table: FrameName, fetched: u64) -> Finding {
    report(machine, cpu, &format!("a walk to {va:#x} reads a freed level-{level} table"), table, fetched)
}

/// Code of the kernel that takes no lock, on its way to `va`, reads an entry of a freed table (C-23).
pub(super) fn read(machine: &Machine, cpu: usize, va: u64, level: u32, table: FrameName) -> Finding {
    let at = table.at >> 12;
    let text = format!(
        "on its way to {va:#x}, with interrupts off, the kernel reads a freed level-{level} table: frame {at:#x}"
    );
    finding(machine, Oracle::FreedTable, cpu, text)
}

/// The top-level table at `root` was replaced, and the call that did it has returned: what CPU still walks it?
pub(super) fn replaced(machine: &Machine, root: u64) -> Option<Finding> {
    let loads_it = |core: &Core| {
        let user_half = if core.pcid.0 & Pcid::USER_BIT == 0 { 0 } else { PAGE_BYTES };
        core.walks() && core.root.at == root + user_half
    };
    let cpu = machine.cpus.iter().position(loads_it)?;
    Some(report(machine, cpu, "its loaded top-level table was replaced", machine.cpus[cpu].root, machine.step))
}

fn report(machine: &Machine, cpu: usize, what: &str, table: FrameName, fetched: u64) -> Finding {
    let core = &machine.cpus[cpu];
    let text = format!(
        "{what}: frame {:#x}, path fetched by its walker in step {fetched}; root {:#x}, PCID {:#x} loaded",
        table.at >> 12,
        core.root.at >> 12,
        core.pcid.0
    );
    finding(machine, Oracle::FreedTable, cpu, text)
}
