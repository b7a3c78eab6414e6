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
mod story;
pub(crate) mod table;
pub(crate) mod translation;
pub(crate) mod value;

use std::any::Any;
use std::fmt;

use tlbkit::Pcid;

use crate::machine::Machine;
use crate::machine::core::Mode;
use crate::machine::instructions::Exception;
use crate::machine::tlb::Entry;

/// A property.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Oracle {
    /// A frame that was given back can be reached.
    FreedFrame,
    /// A page table that was given back can be walked.
    FreedTable,
    /// A translation can be used after the call that revoked it returned.
    StaleTranslation,
    /// A permission can be used after the call that revoked it returned.
    StalePermission,
    /// A tag holds what was fetched for another space.
    ForeignSpace,
    /// Under isolation the user half was left behind.
    UserHalf,
    /// A kernel address, or an entry with the global bit, survived its flush.
    GlobalEntry,
    /// A CPU waits for ever.
    Progress,
    /// A page does not hold what was written to it.
    Value,
    /// A dirty bit that the hardware set was overwritten unseen.
    LostDirty,
    /// An instruction faults.
    Exception,
    /// The protocol's own assertions.
    Assertion,
}

impl Oracle {
    /// True if nothing sensible can come after it.
    pub(crate) const fn ends_a_run(self) -> bool {
        matches!(self, Self::Progress | Self::Exception | Self::Assertion)
    }

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FreedFrame => "freed-frame",
            Self::FreedTable => "freed-table",
            Self::StaleTranslation => "stale-translation",
            Self::StalePermission => "stale-permission",
            Self::ForeignSpace => "foreign-space",
            Self::UserHalf => "user-half",
            Self::GlobalEntry => "global-entry",
            Self::Progress => "progress",
            Self::Value => "value",
            Self::LostDirty => "lost-dirty",
            Self::Exception => "exception",
            Self::Assertion => "assertion",
        }
    }
}

/// Something that must never be, and was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The property.
    pub oracle: Oracle,
    /// The CPU that can do what it must not.
    pub cpu: usize,
    /// When.
    pub step: u64,
    /// Which entry, fetched when, by whom, and which flush should have removed it.
    pub story: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: step {}, CPU {}: {}", self.oracle.name(), self.step, self.cpu, self.story)
    }
}

pub(crate) fn finding(machine: &Machine, oracle: Oracle, cpu: usize, story: String) -> Finding {
    Finding { oracle, cpu, step: machine.step, story }
}

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
fn judge(machine: &Machine, cpu: usize, entry: &Entry) -> Option<Finding> {
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
