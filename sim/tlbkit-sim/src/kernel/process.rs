//! An address space and the threads that run in it.

use std::cell::Cell;

use tlbkit::AddressSpace;
use tlbkit_pmap::Vm;

/// One process. Aligned to a line, so that which fields share lines does not depend on the host's allocator.
#[repr(align(64))]
pub(super) struct Process {
    pub(super) vm: Vm<'static>,
    /// Threads that have not ended.
    pub(super) threads: Cell<usize>,
}

impl Process {
    /// What the protocol knows it by.
    pub(super) fn space(&self) -> &AddressSpace<'static> {
        self.vm.space()
    }
}
