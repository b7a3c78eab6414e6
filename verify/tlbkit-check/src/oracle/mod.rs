//! What must never be. One property a file; the machine knows nothing of them.
//!
//! All of them look at what a CPU *could* use, whether or not the program happens to use it: a CPU in user mode can
//! touch any page of its space at any moment, and a walker can follow any path that is cached.

pub(crate) mod dirty;
pub(crate) mod foreign;
pub(crate) mod frame;
pub(crate) mod global;
pub(crate) mod half;
pub(crate) mod permission;
pub(crate) mod progress;
pub(crate) mod space;
mod story;
pub(crate) mod table;
pub(crate) mod translation;
pub(crate) mod value;

use std::any::Any;

use tlbkit::Pcid;

use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::core::Mode;
use crate::machine::instructions::Exception;
use crate::machine::tlb::TlbEntry;
use story::finding;

/// What `cpu` can reach now.
pub(crate) fn inspect(machine: &Machine, cpu: usize) -> Option<Finding> {
    let core = &machine.cpus[cpu];
    if let Some(found) = table::check(machine, cpu) {
        return Some(found);
    }
    let usable = core.tlb.entries.iter().filter(|entry| entry.page.serves(core.tag));
    for entry in usable {
        let is_kernel = entry.page.start.is_kernel();
        let is_reachable = if is_kernel { core.runs_kernel_code() } else { core.mode == Mode::User };
        if is_reachable && let Some(found) = judge(machine, cpu, entry) {
            return Some(found);
        }
    }
    None
}

/// What a handler on `cpu` can reach that was told that user memory may be touched: through the kernel half.
pub(crate) fn inspect_from_nmi(machine: &Machine, cpu: usize) -> Option<Finding> {
    let core = &machine.cpus[cpu];
    let tag = Pcid(core.tag.0 & !Pcid::USER_BIT);
    let mut usable = core.tlb.entries.iter().filter(|entry| entry.page.pcid == tag && !entry.page.start.is_kernel());
    usable.find_map(|entry| judge(machine, cpu, entry))
}

/// What a CR3 write has just made reachable.
pub(crate) fn inspect_load(machine: &Machine, cpu: usize) -> Option<Finding> {
    foreign::check(machine, cpu).or_else(|| inspect(machine, cpu))
}

/// The first property that `entry`, usable on `cpu`, breaks.
fn judge(machine: &Machine, cpu: usize, entry: &TlbEntry) -> Option<Finding> {
    frame::check(machine, cpu, entry)
        .or_else(|| half::check(machine, cpu, entry))
        .or_else(|| global::check(machine, cpu, entry))
        .or_else(|| permission::check(machine, cpu, entry))
        .or_else(|| translation::check(machine, cpu, entry))
}

/// An instruction that faults.
pub(crate) fn exception(machine: &Machine, cpu: usize, exception: Exception) -> Finding {
    finding(machine, Oracle::Exception, cpu, exception.to_string())
}

/// A panic of the code under test.
pub(crate) fn assertion(machine: &Machine, panic: &Box<dyn Any + Send>) -> Finding {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    finding(machine, Oracle::Assertion, machine.current, text.unwrap_or("a panic without words").to_owned())
}
