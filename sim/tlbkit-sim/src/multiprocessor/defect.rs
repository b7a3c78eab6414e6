//! Machines that lose something, to show that a run notices.

use std::cell::Cell;

/// What the machine loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Defect {
    /// It loses nothing.
    #[default]
    None,
    /// Every INVLPG and INVPCID after so many.
    InvalidationsAfter(u64),
    /// Every flush interrupt after so many.
    InterruptsAfter(u64),
    /// What the handler of every page fault after so many would have repaired.
    RepairsAfter(u64),
}

/// A defect, and how often it has been asked about.
pub(crate) struct DefectCounter {
    defect: Defect,
    seen: Cell<u64>,
}

impl DefectCounter {
    pub(crate) fn new(defect: Defect) -> Self {
        Self { defect, seen: Cell::new(0) }
    }

    /// Counts an invalidation; true if it must have no effect.
    pub(crate) fn loses_invalidation(&self) -> bool {
        matches!(self.defect, Defect::InvalidationsAfter(spared) if self.count() >= spared)
    }

    /// Counts an interrupt; true if it must not arrive.
    pub(crate) fn loses_interrupt(&self) -> bool {
        matches!(self.defect, Defect::InterruptsAfter(spared) if self.count() >= spared)
    }

    /// Counts a page fault; true if it must stay unrepaired.
    pub(crate) fn loses_repair(&self) -> bool {
        matches!(self.defect, Defect::RepairsAfter(spared) if self.count() >= spared)
    }

    fn count(&self) -> u64 {
        self.seen.replace(self.seen.get() + 1)
    }
}
