//! How a kernel reads files.

/// Through what a kernel copies from a file's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileReads {
    /// Through its map of all memory, as Linux does on 64-bit machines: nothing is mapped for it.
    #[default]
    DirectMap,
    /// Through windows of its own addresses, mapped and unmapped for each piece, as NetBSD's buffer cache does.
    Windows,
}
