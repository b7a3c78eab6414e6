//! What a lock guards, as far as loom can see: a cell that every holder touches. A lock that does not order its holders
//! is then a race, which loom reports. Elsewhere it is nothing.

/// Nothing, but under loom a cell without synchronisation of its own.
pub(crate) struct Guarded {
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<()>,
}

impl Guarded {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(loom)]
            cell: loom::cell::UnsafeCell::new(()),
        }
    }

    /// A holder beside others reads.
    pub(crate) fn look(&self) {
        #[cfg(loom)]
        self.cell.with(|_| ());
    }

    /// A holder that is alone writes.
    pub(crate) fn change(&self) {
        #[cfg(loom)]
        self.cell.with_mut(|_| ());
    }
}
