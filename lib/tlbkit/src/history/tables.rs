//! Two choices that the protocol never reads, but whoever keeps page tables: in `tlbkit-pmap` they are followed.

/// When a page-table page of a space that is being emptied is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableFree {
    /// As soon as it is empty: needs a flush that reaches lazy CPUs.
    AtOnce,
    /// At destroy, unless memory is low: what a build without the feature `history` does.
    AtDestroyUnlessLow,
}

/// How the page tables of a space that is not loaded are reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// Through an alternate recursive window, which every CPU drops after each use.
    Window,
    /// By loading the space for as long as it takes.
    TemporarySwitch,
    /// Through a direct map of all memory: what a build without the feature `history` does.
    DirectMap,
}
