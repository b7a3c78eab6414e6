//! What a state of the model consists of: the CPUs, the spaces, what is left to do, and what went wrong.
//!
//! Words that several CPUs read are *memory* words: a plain store reaches them through the CPU's store buffer. The rest
//! belongs to one CPU. Fields called ghosts are no part of the protocol: they remember what the properties ask for.

pub use crate::request::{
    Asked, Change, CpuNumber, FIRST, Generation, ITEMS, Id, Mailbox, NEVER, OTHER_PAGE, PAGE, Request, SECOND,
    SpaceNumber, TABLE, Then,
};
use crate::step::Step;

/// Spaces that live at the same time.
pub const SPACES: usize = 2;
/// Most ASIDs of a CPU.
pub const ASIDS: usize = 2;
/// The PCID that all CPUs can share: it comes after those of a CPU's own ASIDs.
pub const SHARED: usize = ASIDS + 1;
/// PCIDs of one half: the kernel's, then one for each ASID, then the one that all share.
pub const PCIDS: usize = SHARED + 1;
/// Most mailboxes of a CPU; most worlds have the first alone.
pub const RING: usize = 2;

/// What a CPU publishes of itself.
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
    /// Memory, in the same word: all CPUs use the PCID that they can share for it.
    pub is_shared: bool,
    /// Memory, in the same word: it is being given that PCID.
    pub is_moving: bool,
    /// Memory: the CPUs that may hold its translations.
    pub members: u8,
    /// Memory: what a page walk finds.
    pub versions: Versions,
    /// Memory: CPUs that hold it lazily, where they are counted.
    pub lazy_references: u8,
    /// Memory: batches that have named it and are not flushed yet.
    pub owed: u8,
    /// Whether the space is being destroyed: nothing new begins with it.
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
            is_shared: false,
            is_moving: false,
            members: 0,
            versions: [0; ITEMS],
            lazy_references: 0,
            owed: 0,
            is_dying: false,
            floor: [0; ITEMS],
            completed: 0,
            history: vec![[0; ITEMS]],
        }
    }
}

/// A cached item; `id` is 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TlbEntry {
    /// The space that it was read from.
    pub id: Id,
    /// The version that was read.
    pub version: u8,
}

/// A half of a space under page-table isolation; each has its own PCID.
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
    /// The ASID and 1; 0 for the kernel's own tables.
    pub pcid: usize,
    /// Which half.
    pub half: Half,
}

/// What one ASID of a CPU stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsidEntry {
    /// The space; 0 for none.
    pub id: Id,
    /// Up to where its entries were flushed.
    pub generation: Generation,
}

/// A flush that was issued, and is not waited for yet: what the kernel keeps of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pending {
    /// Its responders were interrupted.
    Asked(Asked),
    /// No CPU was interrupted yet.
    Announced(Request),
}

impl Pending {
    /// What was revoked.
    #[must_use]
    pub const fn request(&self) -> &Request {
        match self {
            Self::Asked(asked) => &asked.request,
            Self::Announced(request) => request,
        }
    }
}

/// A batch that is being named: it belongs to the CPU that names, and to no memory that others read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Batch {
    /// The spaces that it names, as bits.
    pub spaces: u8,
    /// The CPUs that were in the set of one of them.
    pub cpus: u8,
    /// One of them has the PCID that all CPUs share.
    pub has_shared: bool,
    /// Ghost: the generation of the last revocation, by space.
    pub named: [Generation; SPACES],
}

/// A store on its way to memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Store {
    /// To the CPU's own presence.
    Presence(Presence),
    /// To one of its own mailboxes; the first says besides whether the other may be in use.
    Mailbox(Mailbox, Request, bool),
    /// To its first mailbox: the other may be in use.
    Several,
    /// To the turn of one of them.
    Turn(Mailbox, u8),
    /// To the outbox of one of them.
    Outbox(Mailbox, u8),
    /// To an entry of a page table: space, item, version.
    Table(SpaceNumber, usize, u8),
    /// To a space's generation; only a deviation stores it plainly.
    Generation(SpaceNumber, Generation),
}

/// What the host says of a CPU, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hosted {
    /// It runs.
    Running,
    /// It does not.
    Preempted,
    /// It does not, and is flushed before it does.
    Marked,
}

/// One CPU.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cpu {
    /// Memory: whether the host runs it.
    pub host: Hosted,
    /// Ghost: a flush was left to the host, so that its ASIDs know of fewer than it has done.
    pub is_spared: bool,
    /// Memory.
    pub presence: Presence,
    /// Memory: the CPUs that sent a request.
    pub inbox: u8,
    /// Memory: the CPUs that have not answered, by mailbox.
    pub outboxes: [u8; RING],
    /// Memory: the requests.
    pub mailboxes: [Option<Request>; RING],
    /// Memory: the first mailbox says that the other may be in use.
    pub is_several: bool,
    /// Memory: how often a mailbox that was issued was found free again.
    pub turns: [u8; RING],
    /// Its mailboxes that were issued and not found free since, as bits.
    pub issued: u8,
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
    /// Its ASIDs.
    pub asids: [AsidEntry; ASIDS],
    /// The ASID to recycle next.
    pub next_asid: usize,
    /// The loaded ASID, or the one about to be; [`ASIDS`] for the PCID that all CPUs share.
    pub asid: usize,
    /// The generation that it read for its next load.
    pub newest: Generation,
    /// With it, it read that the space has the PCID that all CPUs share.
    pub finds_shared: bool,
    /// Ghost: it had been seen to join, and to switch, when it read that.
    pub has_joined: bool,
    /// User halves that are flushed on the way out, by ASID.
    pub pending_user: u8,
    /// It has acknowledged a request that it has not carried out yet.
    pub owes_a_flush: bool,
    /// CR3.
    pub root: Root,
    /// What hardware has cached, by half and PCID.
    pub entries: [[[TlbEntry; ITEMS]; PCIDS]; 2],
}

/// A rule that a step has broken; the rules on states alone need no such mark.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// INV-3: an ASID's generation fell.
    GenerationFell,
    /// INV-5: a lazy CPU was interrupted for a flush that frees no tables.
    LazyInterrupted,
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
    /// The flush of one page, issued.
    pub issues: u8,
    /// The wait for one that was issued; each gives itself its own.
    pub waits: u8,
    /// An entry that is named in a batch.
    pub names: u8,
    /// The flush of a batch; each that begins gives itself its own.
    pub batches: u8,
    /// An entry that is found gone.
    pub drains: u8,
    /// The flush of one page, beside one that is found gone.
    pub besides: u8,
    /// The flush that frees the page table.
    pub tables: u8,
    /// The kernel asks for the PCID that all CPUs share.
    pub shares: u8,
    /// The end of a space, and the birth of the next.
    pub destroys: u8,
    /// A CPU is taken out; it may come back.
    pub absences: u8,
    /// The host takes a CPU away, and runs it again.
    pub preemptions: u8,
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
    /// Flushes that were issued and are not waited for yet, oldest first.
    pub pending: Vec<Pending>,
    /// The batch that is being named.
    pub batch: Batch,
    /// Memory: a space has the PCID that all CPUs can share, or is about to get it.
    pub is_taken: bool,
    /// What is left to do.
    pub budget: Budget,
    /// Ghost: the first rule that a step broke.
    pub fault: Option<Fault>,
}
