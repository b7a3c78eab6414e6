//! Operations: what a kernel had to do, in the order of the trace. They are the input of every replay.

use tlbkit::Stride;
use tlbkit_trace::{Name, Syscall};

/// The number of an address space. Spaces are numbered from 0 in the order in which they appear in the trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Space(pub u32);

/// Whether something belongs to the threads that the caller asks about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Party {
    /// It does. If the caller names no threads, everything does.
    Asked,
    /// It belongs to another thread.
    Other,
}

/// One operation on one CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Op {
    /// When it happened, in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// Number of the CPU that had to do it.
    pub cpu: u32,
    /// Name of the process that caused it.
    pub comm: Name,
    /// Whether the caller asks about the thread that caused it.
    pub party: Party,
    /// What had to be done.
    pub kind: OpKind,
}

/// What had to be done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OpKind {
    /// A thread of `space` runs from here on.
    Run {
        /// The space that the thread uses.
        space: Space,
    },
    /// The idle thread or a kernel thread runs from here on.
    Idle,
    /// A page of the running space was accessed, and that was a page fault.
    Touch {
        /// Number of the base page: its address divided by 4,096.
        page: u64,
    },
    /// A thread entered the kernel by a system call. What the call takes away comes as further operations.
    Call,
    /// A thread of `space` on this CPU took translations of the space away.
    Revoke {
        /// The space whose translations were taken away.
        space: Space,
        /// What asked for the revocation.
        cause: Cause,
        /// The translations that were taken away.
        taken: Taken,
    },
    /// The last thread of `space` has left it: by an exec, for another space, or by its exit, while this CPU still has
    /// the space loaded.
    Retire {
        /// The space that ends.
        space: Space,
        /// What ended it.
        cause: Cause,
    },
}

/// Translations that were taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Number of the first base page of them that was mapped.
    pub page: u64,
    /// Number of base pages from there to the last one that was mapped; `u64::MAX` for the whole space.
    pub pages: u64,
    /// Size of the translations.
    pub stride: Stride,
    /// Whether page tables were freed as well.
    pub frees_tables: bool,
    /// Whether the kernel asked a CPU that ran something else, which then left the CPU set of the space. Linux does so
    /// once a second, and to a CPU that is being switched.
    pub trims: bool,
}

impl Taken {
    /// All translations of a space, without its page tables.
    pub const ALL: Self = Self::pages(0, u64::MAX, Stride::Page4K);

    /// The translations of `pages` base pages from the one with the number `page` on, without page tables.
    #[must_use]
    pub const fn pages(page: u64, pages: u64, stride: Stride) -> Self {
        Self { page, pages, stride, frees_tables: false, trims: false }
    }

    /// Whether all translations of the space were taken away.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.pages == u64::MAX
    }
}

impl Op {
    /// The kind of the revocation, or none if the operation is no revocation.
    #[must_use]
    pub const fn pattern(&self) -> Option<Pattern> {
        match self.kind {
            OpKind::Revoke { cause, taken, .. } => Some(Pattern { cause, extent: Extent::of(taken.pages) }),
            OpKind::Retire { cause, .. } => Some(Pattern { cause, extent: Extent::Space }),
            _ => None,
        }
    }

    /// The caller that asked for the operation.
    #[must_use]
    pub const fn caller(&self) -> Caller {
        Caller { comm: self.comm, party: self.party, pattern: self.pattern() }
    }
}

/// What asked for a revocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// A system call that is none of those below.
    Call(Syscall),
    /// An `madvise` that gives pages back at once.
    DontNeed,
    /// An `madvise` that lets the kernel take pages when memory is short.
    Free,
    /// A write to a page that was shared, so that the page was copied.
    CopyOnWrite,
}

impl Cause {
    /// A short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Call(call) => call.label(),
            Self::DontNeed => "madvise DONTNEED",
            Self::Free => "madvise FREE",
            Self::CopyOnWrite => "copy on write",
        }
    }
}

/// A caller: all threads of one name, as far as they asked for one kind of thing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Caller {
    /// Name of the threads.
    pub comm: Name,
    /// Whether the reader of the results asks about these threads.
    pub party: Party,
    /// The kind of revocation that they asked for; none for switches.
    pub pattern: Option<Pattern>,
}

/// A kind of revocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pattern {
    /// What asked for it.
    pub cause: Cause,
    /// How much it took away.
    pub extent: Extent,
}

/// How much a revocation takes away, as Linux's ceiling and its page tables make it differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Extent {
    /// A page.
    Page,
    /// Two or more pages, up to Linux's ceiling of 33.
    Few,
    /// More pages, up to the 512 that one page table maps.
    Table,
    /// More pages than one page table maps.
    Many,
    /// The whole space.
    Space,
}

impl Extent {
    /// The extent of this number of base pages; `u64::MAX` stands for the whole space.
    #[must_use]
    pub const fn of(pages: u64) -> Self {
        match pages {
            0..=1 => Self::Page,
            2..=33 => Self::Few,
            34..=512 => Self::Table,
            u64::MAX => Self::Space,
            _ => Self::Many,
        }
    }

    /// A short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Page => "1 page",
            Self::Few => "2-33 pages",
            Self::Table => "34-512 pages",
            Self::Many => "more than 512 pages",
            Self::Space => "the whole space",
        }
    }
}
