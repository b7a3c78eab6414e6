//! Choices that the protocol never reads. The code that keeps the page tables does: here that is `tlbkit-pmap`.

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

/// What an operation over a range flushes at its end if another one of the same space is under way (C-28).
///
/// Whoever keeps the tables counts such operations. The entry that one of them finds gone may be what another has taken
/// out and not flushed yet, so the one that would return must not rely on that flush. Its own range is enough: it
/// promised nothing about other addresses, and whatever it named lies in there. So nobody but Linux needs the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nested {
    /// Its own range, as Linux 4.13 to 5.1 do: what a build without the feature `history` does.
    Range,
    /// Everything, on CPUs that hold the space lazily as well, as if page tables had been freed: Linux from 5.2 on.
    Everything,
}

/// When a page of shared memory that somebody has stored to is flushed, once it is taken out.
///
/// A CPU may store to it until then, through what its TLB holds. Linux would not see such a store any more: as soon as
/// the lock is let go, it may find the page mapped nowhere, write it to its file, and take it for clean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedDirty {
    /// With all others, at the end of the operation: what a build without the feature `history` does.
    AtEnd,
    /// Before the lock of its page table is let go, as Linux does since 3.15, and with it all that was named till then.
    UnderLock,
}
