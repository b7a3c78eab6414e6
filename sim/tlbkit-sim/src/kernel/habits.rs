//! What a kernel does that a policy of the protocol says nothing of.

use super::lists::PageLists;

/// Through what a kernel copies from a file's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileReads {
    /// Through its map of all memory, as Linux does on 64-bit machines: nothing is mapped for it.
    #[default]
    DirectMap,
    /// Through windows of its own addresses, mapped and unmapped for each piece, as NetBSD's buffer cache does.
    Windows,
}

/// Habits of the kernel of one run.
pub(crate) struct Habits {
    /// Through what it reads files.
    pub(crate) file_reads: FileReads,
    /// Base pages of a file that a load's fault maps at once.
    pub(crate) fault_around: u64,
    /// How it keeps lists of pages.
    pub(crate) lists: PageLists,
}
