//! The end of a space (C-25): nobody touches it once it was said to be free, and it is said when nobody holds it.

use super::story::finding;
use crate::finding::{Finding, Oracle};
use crate::machine::Machine;
use crate::machine::memory::Use;
use crate::machine::ops::home;

/// The running CPU touches a word of a space that was said to be free.
pub(super) fn touched(machine: &Machine, space: usize) -> Finding {
    let text = format!("touches space {space}, which was reported to be free");
    finding(machine, Oracle::DeadSpace, machine.current, text)
}

/// The run is over: `space`, whose top-level table is at `root`, has ended, and nobody has said that it is free.
pub(super) fn kept(machine: &Machine, space: usize, root: u64) -> Option<Finding> {
    // The two halves' tables stand side by side.
    let is_held = machine.cpus.iter().any(|core| home(&machine.roots, core.root).at & !0x1000 == root & !0x1000);
    (!is_held).then(|| {
        let text = format!("no CPU holds space {space}, which has ended, and the kernel was not notified");
        finding(machine, Oracle::Leak, 0, text)
    })
}

/// Everything was given back: the frames that are in use now must be those of `before`.
pub(super) fn lost(machine: &Machine, before: &[(u64, Use)]) -> Option<Finding> {
    let lost: Vec<_> = machine.memory.in_use().filter(|frame| !before.contains(frame)).collect();
    let &(at, is) = lost.first()?;
    let what = if is == Use::Table { "table" } else { "frame" };
    let text = format!("{what} {at:#x} is still somebody's when everything was given back, {} in all", lost.len());
    Some(finding(machine, Oracle::Leak, 0, text))
}
