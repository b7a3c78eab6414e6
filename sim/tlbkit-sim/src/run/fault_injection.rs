//! Machines that lose something, to show that a run notices.

use std::cell::Cell;

/// What the machine loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Every INVLPG and INVPCID after so many.
    InvalidationsAfter(u64),
    /// Every flush interrupt after so many.
    InterruptsAfter(u64),
    /// What the handler of every page fault after so many would have repaired.
    RepairsAfter(u64),
}

/// The machine's way of losing it.
pub(crate) struct Sabotage {
    fault: Fault,
    seen: Cell<u64>,
}

impl Sabotage {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { fault, seen: Cell::new(0) }
    }

    /// Counts an invalidation; true if it must have no effect.
    pub(crate) fn loses_invalidation(&self) -> bool {
        matches!(self.fault, Fault::InvalidationsAfter(spared) if self.count() >= spared)
    }

    /// Counts an interrupt; true if it must not arrive.
    pub(crate) fn loses_interrupt(&self) -> bool {
        matches!(self.fault, Fault::InterruptsAfter(spared) if self.count() >= spared)
    }

    /// Counts a page fault; true if it must stay unrepaired.
    pub(crate) fn loses_repair(&self) -> bool {
        matches!(self.fault, Fault::RepairsAfter(spared) if self.count() >= spared)
    }

    fn count(&self) -> u64 {
        self.seen.replace(self.seen.get() + 1)
    }
}
