//! Why translations were revoked: what the kernel says with each flush.

/// Why translations were revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// A mapping was removed page by page.
    RemovePte,
    /// A whole space was emptied.
    RemoveAll,
    /// Write permission was taken away.
    WriteProtect,
    /// Fork shared the pages of the parent.
    Fork,
    /// A copy replaced a shared page.
    CopyOnWrite,
    /// A mapping was replaced by another.
    Enter,
    /// A page-table page was freed.
    FreeTable,
    /// A kernel mapping was made over an old one.
    KernelEnter,
    /// A kernel mapping was removed.
    KernelRemove,
    /// The window to foreign page tables was moved.
    ForeignTables,
    /// A page was moved to another frame.
    Migrate,
    /// A space ended.
    Destroy,
}

impl Reason {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::RemovePte,
        Self::RemoveAll,
        Self::WriteProtect,
        Self::Fork,
        Self::CopyOnWrite,
        Self::Enter,
        Self::FreeTable,
        Self::KernelEnter,
        Self::KernelRemove,
        Self::ForeignTables,
        Self::Migrate,
        Self::Destroy,
    ];
}
