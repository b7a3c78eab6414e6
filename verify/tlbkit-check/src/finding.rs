//! What can be found: a property that was broken, by which CPU, when, and how that came.

use std::fmt;

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
    /// A PCID holds what was fetched for another space.
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
    /// A space is touched by the protocol after it has said that the space can be freed.
    DeadSpace,
    /// A dead space that no CPU has loaded was never said to be free.
    Leak,
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
            Self::DeadSpace => "dead-space",
            Self::Leak => "leak",
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
