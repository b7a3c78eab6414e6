//! What must never be. One property a file, and one table of which observation of the machine each is checked at.
//!
//! All of them look at what a CPU *could* use, whether or not the program happens to use it: a CPU in user mode can
//! touch any page of its space at any moment, and a walker can follow any path that is cached.

mod dirty;
mod foreign;
mod frame;
mod global;
mod half;
mod permission;
mod progress;
mod space;
mod story;
mod table;
mod translation;
mod value;

use std::any::Any;
use std::cell::RefCell;

use tlbkit::Pcid;

use crate::finding::{Finding, Oracle};
use crate::machine::guest::Hosted;
use crate::machine::observation::{Exception, Observation};
use crate::machine::tlb::TlbEntry;
use crate::machine::{Machine, Monitor};
use dirty::TakenFrame;
use story::finding;

/// The monitor of a machine that checks all properties, or one.
pub(crate) struct Oracles {
    /// The one property that is checked besides those that end a run by themselves.
    only: Option<Oracle>,
    taken: RefCell<Vec<TakenFrame>>,
}

impl Oracles {
    pub(crate) fn new(only: Option<Oracle>) -> Self {
        Self { only, taken: RefCell::default() }
    }
}

impl Monitor for Oracles {
    fn observe(&self, machine: &Machine, what: &Observation<'_>) -> Option<Finding> {
        let found = match *what {
            Observation::ReachChanged { cpu } => inspect(machine, cpu),
            Observation::RootLoaded { cpu } => foreign::check(machine, cpu).or_else(|| inspect(machine, cpu)),
            Observation::UserMemoryAllowed { cpu } => inspect_user_memory(machine, cpu),
            Observation::FreedTableWalked { cpu, va, level, table, fetched } => {
                Some(table::walked(machine, cpu, va, level, table, fetched))
            }
            Observation::FreedTableRead { cpu, va, level, table } => Some(table::read(machine, cpu, va, level, table)),
            Observation::TablesReplaced { root } => table::replaced(machine, root),
            Observation::InstructionFaulted { cpu, exception: Exception(rule) } => {
                Some(finding(machine, Oracle::Exception, cpu, rule.to_owned()))
            }
            Observation::StoreArrives { at, store } => {
                frame::stored(machine, store).or_else(|| dirty::overwritten(machine, at, store.value))
            }
            Observation::EntryChanged { at, before, op } => {
                dirty::changed(machine, &mut self.taken.borrow_mut(), at, before, op)
            }
            Observation::UserLoad { space, va, value } => value::check(machine, space, va, value),
            Observation::FreedSpaceAccessed { space } => Some(space::touched(machine, space)),
            Observation::Stuck(what) => Some(progress::stuck(machine, what)),
            Observation::Panicked(panic) => Some(assertion(machine, panic)),
            Observation::SpaceNotFreed { space, root } => space::kept(machine, space, root),
            Observation::AllGivenBack { before } => space::lost(machine, before),
        };
        found.filter(|found| found.oracle.ends_a_run() || self.only.is_none_or(|only| only == found.oracle))
    }
}

/// What `cpu` can reach now.
pub(crate) fn inspect(machine: &Machine, cpu: usize) -> Option<Finding> {
    let core = &machine.cpus[cpu];
    if core.host != Hosted::Running {
        return None; // what it can reach is looked at when it runs again
    }
    if let Some(found) = table::check(machine, cpu) {
        return Some(found);
    }
    let usable = core.tlb.entries.iter().filter(|entry| entry.page.serves(core.pcid));
    for entry in usable {
        let is_kernel = entry.page.start.is_kernel();
        let is_reachable = if is_kernel { core.runs_kernel_code() } else { core.runs_a_program() };
        if is_reachable && let Some(found) = judge(machine, cpu, entry) {
            return Some(found);
        }
    }
    None
}

/// What kernel code on `cpu` can reach of user memory, through the kernel half.
fn inspect_user_memory(machine: &Machine, cpu: usize) -> Option<Finding> {
    let core = &machine.cpus[cpu];
    let pcid = Pcid(core.pcid.0 & !Pcid::USER_BIT);
    let mut usable = core.tlb.entries.iter().filter(|entry| entry.page.pcid == pcid && !entry.page.start.is_kernel());
    usable.find_map(|entry| judge(machine, cpu, entry))
}

/// The first property that `entry`, usable on `cpu`, breaks.
fn judge(machine: &Machine, cpu: usize, entry: &TlbEntry) -> Option<Finding> {
    frame::check(machine, cpu, entry)
        .or_else(|| half::check(machine, cpu, entry))
        .or_else(|| global::check(machine, cpu, entry))
        .or_else(|| permission::check(machine, cpu, entry))
        .or_else(|| translation::check(machine, cpu, entry))
}

/// A panic of the code under test.
fn assertion(machine: &Machine, panic: &(dyn Any + Send)) -> Finding {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    finding(machine, Oracle::Assertion, machine.current, text.unwrap_or("a panic without words").to_owned())
}
