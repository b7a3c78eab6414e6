//! What one CPU requests of another, and how CPUs, spaces, pages and mailboxes are numbered.

/// CPUs are numbered 0, 1, 2; sets of them are bits.
pub type CpuNumber = usize;
/// Spaces are numbered 0, 1, and keep their number when one dies and the next takes its place.
pub type SpaceNumber = usize;
/// A space's name; 0 is the kernel's own tables.
pub type Id = u8;
/// A generation; 0 is never a space's.
pub type Generation = u8;
/// More than any generation that a space reaches: no ASID is up to it.
pub const NEVER: Generation = Generation::MAX;

/// What a PCID caches of a space: [`PAGE`], [`OTHER_PAGE`], and the way to the page table that both are in, [`TABLE`].
pub const ITEMS: usize = 3;
/// One page.
pub const PAGE: usize = 0;
/// Another page, so that a flush of one is not a flush of everything.
pub const OTHER_PAGE: usize = 1;
/// A page-table page: cached as a path, and walked by hardware whenever the root is loaded.
pub const TABLE: usize = 2;
/// A CPU's mailboxes are numbered 0, 1.
pub type Mailbox = usize;
/// The mailbox that says whether the other is in use.
pub const FIRST: Mailbox = 0;
/// The other one.
pub const SECOND: Mailbox = 1;

/// What a CPU does to a space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// One page is revoked.
    Page(usize),
    /// Both pages are revoked by a request for everything.
    Everything,
    /// A page is revoked, and the table that it was in is freed.
    Table,
    /// The space ends.
    Destroy,
    /// The space gets the PCID that all CPUs share: those that hold it leave the one that they had.
    Move,
    /// What a batch named in these spaces, as bits, is flushed: whatever is loaded, up to its newest generation.
    Loaded(u8),
}

impl Change {
    pub(crate) const fn items(self) -> &'static [usize] {
        match self {
            Self::Page(PAGE) => &[PAGE],
            Self::Page(_) => &[OTHER_PAGE],
            Self::Everything => &[PAGE, OTHER_PAGE],
            Self::Table => &[PAGE, TABLE],
            Self::Destroy | Self::Move | Self::Loaded(_) => &[],
        }
    }

    const fn frees_tables(self) -> bool {
        matches!(self, Self::Table | Self::Destroy | Self::Move)
    }
}

/// What is requested of another CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The space whose translations are flushed.
    pub space: SpaceNumber,
    /// The space's name when the request was sent.
    pub id: Id,
    /// The generation to be reached.
    pub generation: Generation,
    /// Why.
    pub change: Change,
    /// CPUs that run something else leave the set.
    pub is_trim: bool,
}

impl Request {
    /// The page to be flushed alone; none for everything.
    pub(crate) const fn page(&self) -> Option<usize> {
        match self.change {
            Change::Page(page) => Some(page),
            Change::Table => Some(PAGE),
            Change::Everything | Change::Destroy | Change::Move | Change::Loaded(_) => None,
        }
    }

    pub(crate) const fn frees_tables(&self) -> bool {
        self.change.frees_tables()
    }
}

/// What comes when the request was sent to all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Then {
    /// The initiator waits for the answers.
    Wait,
    /// The initiator returns, and the answers are waited for later.
    Return,
}

/// A request that was issued: whose it is, and in which mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Asked {
    /// The initiator.
    pub by: CpuNumber,
    /// Its mailbox.
    pub mailbox: Mailbox,
    /// The turn of that mailbox.
    pub turn: u8,
    /// The request; the protocol itself does not keep it.
    pub request: Request,
}
