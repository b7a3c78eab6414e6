//! What a state of the model consists of: the CPUs, the spaces, what is left to do, and what went wrong.
//!
//! Words that several CPUs read are *memory* words: a plain store reaches them through the CPU's store buffer. The rest
//! belongs to one CPU. Fields called ghosts are no part of the protocol: they remember what the properties ask for.

/// CPUs are numbered 0, 1, 2; sets of them are bits.
pub type CpuNumber = usize;
/// Spaces are numbered 0, 1, and keep their number when one dies and the next takes its place.
pub type SpaceNumber = usize;
/// A space's name; 0 is the kernel's own tables.
pub type Id = u8;
/// A generation; 0 is never a space's.
pub type Generation = u8;

/// Spaces that live at the same time.
pub const SPACES: usize = 2;
/// What a tag caches of a space: [`PAGE`], [`OTHER_PAGE`], and the way to the page table that both are in, [`TABLE`].
pub const ITEMS: usize = 3;
/// One page.
pub const PAGE: usize = 0;
/// Another page, so that a flush of one is not a flush of everything.
pub const OTHER_PAGE: usize = 1;
/// A page-table page: cached as a path, and walked by hardware whenever the root is loaded.
pub const TABLE: usize = 2;
/// Most slots of a CPU.
pub const SLOTS: usize = 2;
/// Tags of one half: the kernel's, then one a slot.
pub const TAGS: usize = SLOTS + 1;

/// What a CPU tells the others of itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Presence {
    /// In the kernel's own tables.
    Kernel,
    /// Between two roots.
    Switching,
    /// Running the space of this name.
    Running(Id),
    /// Holding it without use.
    Lazy(Id),
    /// Taken out: it answers nobody.
    Absent,
}

/// The version of each item of a space; a revocation makes a new one.
pub type Versions = [u8; ITEMS];

/// A space.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Space {
    /// Its name.
    pub id: Id,
    /// Memory: how many revocations there have been.
    pub generation: Generation,
    /// Memory: the CPUs that may hold its translations.
    pub members: u8,
    /// Memory: what a page walk finds.
    pub versions: Versions,
    /// Memory: CPUs that hold it lazily, where they are counted.
    pub lazy_references: u8,
    /// It is being destroyed: nobody begins anything with it.
    pub is_dying: bool,
    /// Ghost: the oldest version that may be used, since the flush of those before has returned.
    pub floor: Versions,
    /// Ghost: the newest generation whose flush has returned.
    pub completed: Generation,
    /// Ghost: by generation from 1 on, the oldest versions that are not revoked then.
    pub history: Vec<Versions>,
}

impl Space {
    /// A space that nobody has used yet.
    pub(crate) fn fresh(id: Id) -> Self {
        Self {
            id,
            generation: 1,
            members: 0,
            versions: [0; ITEMS],
            lazy_references: 0,
            is_dying: false,
            floor: [0; ITEMS],
            completed: 0,
            history: vec![[0; ITEMS]],
        }
    }
}

/// A cached item; `id` is 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Entry {
    /// The space that it was read from.
    pub id: Id,
    /// The version that was read.
    pub version: u8,
}

/// A half of a space under page-table isolation; each has a tag of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Half {
    /// The kernel half; without isolation the only one.
    Kernel = 0,
    /// The user half.
    User = 1,
}

/// What CR3 names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Root {
    /// The space; 0 for the kernel's own tables.
    pub id: Id,
    /// The space's number, when `id` is not 0.
    pub space: SpaceNumber,
    /// Slot and 1; 0 for the kernel's own tables.
    pub tag: usize,
    /// Which half.
    pub half: Half,
}

/// One slot of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Slot {
    /// The space; 0 for none.
    pub id: Id,
    /// Up to where its entries were flushed.
    pub generation: Generation,
}

/// What a CPU does to a space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// It revokes one page.
    Page(usize),
    /// It revokes both, and asks for everything.
    Everything,
    /// It revokes a page, and frees the table that the page was in.
    Table,
    /// It ends the space.
    Destroy,
}

impl Change {
    pub(crate) const fn items(self) -> &'static [usize] {
        match self {
            Self::Page(PAGE) => &[PAGE],
            Self::Page(_) => &[OTHER_PAGE],
            Self::Everything => &[PAGE, OTHER_PAGE],
            Self::Table => &[PAGE, TABLE],
            Self::Destroy => &[],
        }
    }

    const fn frees_tables(self) -> bool {
        matches!(self, Self::Table | Self::Destroy)
    }
}

/// What is asked of another CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Whose translations.
    pub space: SpaceNumber,
    /// The space's name when it was asked.
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
            Change::Everything | Change::Destroy => None,
        }
    }

    pub(crate) const fn frees_tables(&self) -> bool {
        self.change.frees_tables()
    }
}

/// A store on its way to memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Store {
    /// To the CPU's own presence.
    Presence(Presence),
    /// To its own mailbox.
    Mailbox(Request),
    /// To its own outbox.
    Outbox(u8),
    /// To an entry of a page table: space, item, version.
    Table(SpaceNumber, usize, u8),
    /// To a space's generation; only a deviation stores it plainly.
    Generation(SpaceNumber, Generation),
}

/// One CPU.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cpu {
    /// Memory.
    pub presence: Presence,
    /// Memory: the CPUs that asked.
    pub inbox: u8,
    /// Memory: the CPUs that have not answered.
    pub outbox: u8,
    /// Memory: what is asked.
    pub mailbox: Option<Request>,
    /// An interrupt is on its way.
    pub has_interrupt: bool,
    /// Stores on their way, oldest first.
    pub buffer: Vec<Store>,
    /// What it is doing, the next step last; empty while its program runs, or it idles.
    pub steps: Vec<Step>,
    /// The space whose program runs here.
    pub task: Option<SpaceNumber>,
    /// The space whose program it is about to leave; the kernel keeps the space until the call returns.
    pub leaving: Option<SpaceNumber>,
    /// Its own presence, as it sees it.
    pub own_presence: Presence,
    /// Its slots.
    pub slots: [Slot; SLOTS],
    /// The slot to recycle next.
    pub next_slot: usize,
    /// The loaded slot, or the one about to be.
    pub slot: usize,
    /// The generation that it read for its next load.
    pub newest: Generation,
    /// Ghost: it had been seen to join, and to switch, when it read that.
    pub has_joined: bool,
    /// User halves that are flushed on the way out, by slot.
    pub pending_user: u8,
    /// CR3.
    pub root: Root,
    /// What hardware has cached, by half and tag.
    pub entries: [[[Entry; ITEMS]; TAGS]; 2],
}

/// One step of what a CPU does: at most one access to memory that others share, and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Joins the set of a space.
    Join(SpaceNumber),
    /// Says that it is between two roots, having taken a slot.
    MarkSwitching(SpaceNumber),
    /// Waits until its stores have reached memory.
    Fence,
    /// Reads the generation of the space that it is about to load.
    ReadGeneration(SpaceNumber),
    /// Writes CR3.
    LoadRoot(SpaceNumber),
    /// Says that it runs the space.
    MarkRunning(SpaceNumber),
    /// Leaves the set of a space, known by number and name.
    LeaveSet(SpaceNumber, Id),
    /// Drops a counted lazy reference.
    Uncount(SpaceNumber, Id),
    /// Takes a counted lazy reference.
    Count(SpaceNumber),
    /// Says that it holds its space lazily.
    MarkLazy,
    /// Says that it is on its way back to what it held lazily.
    MarkBack(SpaceNumber),
    /// Reads the generation after it came back.
    Recheck(SpaceNumber),
    /// Loads the space again, flushed up to a generation.
    Reload(Generation),
    /// Says that it leaves for the kernel's tables.
    MarkLeaving,
    /// Loads the kernel's tables.
    LoadKernel,
    /// Says that it is in the kernel's tables.
    MarkKernel,
    /// Changes the page table of a space.
    ChangeTable(SpaceNumber, Change),
    /// Advances the generation.
    Advance(SpaceNumber, Change),
    /// Looks whether anybody else is in the set.
    LookAlone(Request),
    /// Reads the set.
    ReadSet(Request),
    /// Reads the presence of the first CPU of `unread`.
    ReadPresence {
        /// What is asked.
        request: Request,
        /// CPUs still to be looked at.
        unread: u8,
        /// CPUs that will be told.
        chosen: u8,
    },
    /// Drops a hint at the first of these CPUs, and interrupts it.
    Hint(u8),
    /// Waits for the answers.
    Wait,
    /// The flush returns.
    Return(Request),
    /// The space has ended.
    Ended(SpaceNumber),
    /// Takes what is in the inbox.
    TakeInbox,
    /// Empties it, when it was only read before; a deviation alone does.
    ClearInbox,
    /// Looks whether the first of these CPUs still waits.
    CheckOutbox(u8),
    /// Reads a CPU's mailbox.
    ReadMailbox(CpuNumber),
    /// Carries out a request: looks at what it runs itself, and reads the generation if that is what is asked.
    CarryOut(Request),
    /// Flushes what it runs, up to a generation.
    FlushLoaded(Request, Generation),
    /// Tells a sender that it is done.
    Acknowledge(CpuNumber),
    /// Says that it is gone.
    MarkAbsent,
    /// Forgets who asked while it was away.
    ForgetInbox,
    /// Forgets what the first of these CPUs asked while it was away.
    ForgetOutbox(u8),
    /// Begins with empty TLBs.
    Restart,
}

/// A rule that a step has broken; the rules on states alone need no such mark.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// INV-3: a slot's generation fell.
    SlotFell,
    /// INV-5: a lazy CPU was told of a flush that frees no tables.
    LazyTold,
    /// INV-12: a load kept its entries without right.
    KeptWithoutRight,
    /// A CPU touched a space that has ended.
    TouchedTheDead,
}

/// How often the CPUs may still begin what, all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Budget {
    /// A switch to a space.
    pub switches: u8,
    /// Going lazy, or to the kernel's own tables.
    pub idles: u8,
    /// The flush of one page.
    pub pages: u8,
    /// The flush of everything, both pages changed.
    pub wholes: u8,
    /// The flush that frees the page table.
    pub tables: u8,
    /// The end of a space, and the birth of the next.
    pub destroys: u8,
    /// A CPU is taken out; it may come back.
    pub absences: u8,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The CPUs.
    pub cpus: Vec<Cpu>,
    /// The spaces.
    pub spaces: [Space; SPACES],
    /// The name of the next space.
    pub next_id: Id,
    /// What is left to do.
    pub budget: Budget,
    /// Ghost: the first rule that a step broke.
    pub fault: Option<Fault>,
}
