//! What a kernel had to do, in the order of the trace: the input of every replay.

use tlbkit::Stride;
use tlbkit_trace::{Name, Syscall};

/// An address space of the trace, numbered in the order in which they appear.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Space(pub u32);

/// Whether something is of those whom the reader asks about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Party {
    /// It is; everything is where nobody is named.
    Asked,
    /// It is of somebody else.
    Other,
}

/// One step on one CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Op {
    /// Nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The CPU that had to do it.
    pub cpu: u32,
    /// Name of the process that caused it.
    pub comm: Name,
    /// Whether that is one that the reader asks about.
    pub party: Party,
    /// What had to be done.
    pub kind: OpKind,
}

/// What had to be done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OpKind {
    /// A thread of `space` runs from here on.
    Run {
        /// Its space.
        space: Space,
    },
    /// The idle thread or a kernel thread runs.
    Idle,
    /// A page of the running space was used for the first time, or again, and that was a fault.
    Touch {
        /// Number of the base page.
        page: u64,
        /// What the kernel had to do for it.
        fault: Fault,
        /// The revocation without which the page would have been there, if there was one.
        because: Option<Pattern>,
    },
    /// A thread called the kernel, for nothing that matters here by itself.
    Call,
    /// Translations of `space` were taken away by a thread of it on this CPU.
    Revoke {
        /// The space that is meant.
        space: Space,
        /// What asked for it.
        cause: Cause,
        /// The translations that were taken away.
        taken: Taken,
    },
    /// The last thread of `space` has left it: in an exec for another one, or in its exit, while this CPU still has it
    /// loaded.
    Retire {
        /// The space that is meant.
        space: Space,
        /// What ended it.
        cause: Cause,
    },
}

/// What the kernel has to do for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Find a new page of anonymous memory, and zero it.
    New,
    /// The same with 2 MiB.
    Huge,
    /// Map a page that is there, or copy one.
    Other,
}

/// Translations that were taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Number of the first base page that was mapped in the range.
    pub page: u64,
    /// Base pages from there to the last that was mapped; `u64::MAX` for the whole space.
    pub pages: u64,
    /// Size of the translations.
    pub stride: Stride,
    /// Page tables went too.
    pub frees_tables: bool,
    /// The kernel asked a CPU that ran something else, as it does once a second, or in the midst of a switch: so that
    /// CPU left the set.
    pub trims: bool,
    /// Pages that were given back with them, or marked to be taken when memory is short.
    pub freed: u64,
}

impl Taken {
    /// The whole space, its tables not.
    pub const ALL: Self = Self::pages(0, u64::MAX, Stride::Page4K);

    /// These, and no tables.
    #[must_use]
    pub const fn pages(page: u64, pages: u64, stride: Stride) -> Self {
        Self { page, pages, stride, frees_tables: false, trims: false, freed: 0 }
    }

    /// Whether it is the whole space.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.pages == u64::MAX
    }
}

impl Op {
    /// What kind of revocation it is, if it is one.
    #[must_use]
    pub const fn pattern(&self) -> Option<Pattern> {
        match self.kind {
            OpKind::Revoke { cause, taken, .. } => Some(Pattern { cause, extent: Extent::of(taken.pages) }),
            OpKind::Retire { cause, .. } => Some(Pattern { cause, extent: Extent::Space }),
            _ => None,
        }
    }

    /// Who asked for it.
    #[must_use]
    pub const fn who(&self) -> Who {
        Who { comm: self.comm, party: self.party, pattern: self.pattern() }
    }

    /// Whose revocation this fault comes of, if it comes of one.
    #[must_use]
    pub const fn because(&self) -> Option<Who> {
        match self.kind {
            OpKind::Touch { because: Some(pattern), .. } => {
                Some(Who { comm: self.comm, party: self.party, pattern: Some(pattern) })
            }
            _ => None,
        }
    }
}

/// What asked for a revocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// A system call but those below.
    Call(Syscall),
    /// `madvise` that gives pages back at once.
    DontNeed,
    /// The same in memory that was reserved as glibc reserves that of its arenas.
    ArenaDontNeed,
    /// `madvise` that lets pages go when memory is short.
    Free,
    /// A store to a page that was shared until then.
    CopyOnWrite,
    /// `munmap` of a file, or of memory that others see too: no allocator has such memory.
    FileMunmap,
    /// `madvise` that gives pages of such memory back at once.
    FileDontNeed,
}

impl Cause {
    /// True for the calls by which programs give memory back.
    #[must_use]
    pub const fn gives_back(self) -> bool {
        matches!(self, Self::FileMunmap | Self::FileDontNeed | Self::Call(Syscall::Madvise))
            || self.may_be_an_allocators()
    }

    /// True for those of them that an allocator may have made.
    #[must_use]
    pub const fn may_be_an_allocators(self) -> bool {
        matches!(self, Self::DontNeed | Self::ArenaDontNeed | Self::Free | Self::Call(Syscall::Brk | Syscall::Munmap))
    }

    /// Short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Call(call) => call.label(),
            Self::DontNeed => "madvise DONTNEED",
            Self::ArenaDontNeed => "madvise DONTNEED in an arena",
            Self::Free => "madvise FREE",
            Self::CopyOnWrite => "copy on write",
            Self::FileMunmap => "munmap of a file or shared memory",
            Self::FileDontNeed => "madvise of a file or shared memory",
        }
    }
}

/// A caller: threads of one name, asking for one thing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Who {
    /// Name of the thread.
    pub comm: Name,
    /// Whether the reader asks about it.
    pub party: Party,
    /// What it asked for; none for switches.
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
    /// Up to Linux's ceiling.
    Few,
    /// Up to what one table maps.
    Table,
    /// More than one table maps.
    Many,
    /// The whole space.
    Space,
}

impl Extent {
    /// Of so many base pages; `u64::MAX` is the whole space.
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

    /// Short name for tables.
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
