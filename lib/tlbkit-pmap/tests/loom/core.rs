//! What is one CPU's own: its TLB, its CR3, its interrupt line.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tlbkit::sync::{AtomicU32, Ordering};
use tlbkit::{Cr3, PhysAddr};
use tlbkit_arch::Pte;

use crate::memory::Held;

/// A translation: the frame that it leads to, and the entry that it was read from.
pub(crate) struct Entry {
    pub(crate) va: u64,
    pub(crate) frame: Rc<Held>,
    pub(crate) at: PhysAddr,
    pub(crate) pte: Pte,
}

/// What is one CPU's own. Only its thread touches it, but for the line.
pub(crate) struct Core {
    pub(crate) line: Line,
    pub(crate) are_irqs_on: Cell<bool>,
    pub(crate) cr3: Cell<Cr3>,
    pub(crate) entries: RefCell<Vec<Entry>>,
    /// True if the protocol has said that this CPU was the last to hold the space.
    pub(crate) was_last: Cell<bool>,
}

impl Core {
    pub(crate) fn new() -> Self {
        Self {
            line: Line::new(),
            are_irqs_on: Cell::new(true),
            cr3: Cell::new(Cr3(0)),
            entries: RefCell::default(),
            was_last: Cell::new(false),
        }
    }
}

/// The interrupt line of a CPU. Its delivery orders what was written before it was sent, as the protocol demands of it.
pub(crate) struct Line(AtomicU32);

impl Line {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn raise(&self) {
        // Release: partner is the Acquire in `take`.
        self.0.fetch_or(1, Ordering::Release);
    }

    pub(crate) fn take(&self) -> bool {
        // Acquire: partner is the Release in `raise`.
        self.0.swap(0, Ordering::Acquire) != 0
    }
}
