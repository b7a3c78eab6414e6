//! Everything that one CPU may have cached, and what each instruction removes.
//!
//! A CPU may keep an entry for ever and may fetch one at any time. So this is no array of some size but the set of
//! all entries that the CPU could hold: every possible TLB content at once. A property that must hold whatever the
//! hardware does must hold for each entry of the set.
//!
//! What an instruction removes is what the manual guarantees and nothing more:
//!
//! | | entries of its tag | of other tags | global entries | cached paths |
//! |---|---|---|---|---|
//! | INVLPG | the page | kept | the page | all of the tag |
//! | CR3, bit 63 clear | all of the *new* tag | kept | kept | of the new tag |
//! | CR3, bit 63 set | kept | kept | kept | kept |
//! | CR3, PCIDs off | all | - | kept | all |
//! | INVPCID 0 | the page | kept | kept | those that map the address |
//! | INVPCID 1 | all | kept | kept | of the tag |
//! | INVPCID 2, CR4.PGE, CR4.PCIDE 1 to 0 | all | all | all | all |
//! | INVPCID 3 | all | all | kept | all |
//! | INVLPGB | as its flags say | | if asked | unless only final entries are asked for |

use super::memory::FrameName;

/// A translation that a CPU may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) tag: u16,
    /// First address that it translates.
    pub(crate) va: u64,
    /// log2 of the bytes that it translates.
    pub(crate) shift: u32,
    pub(crate) frame: FrameName,
    pub(crate) may_write: bool,
    pub(crate) is_user: bool,
    pub(crate) is_dirty: bool,
    pub(crate) is_global: bool,
    /// The top-level table that the walk began at.
    pub(crate) root: FrameName,
    /// Where the page-table entry lies.
    pub(crate) pte_at: u64,
    pub(crate) life: Life,
}

/// Its story: when it was fetched, and whether the page tables still say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    /// The step in which a walk could fetch it first.
    pub(crate) fetched: u64,
    /// What made it stale.
    pub(crate) revoked: Option<Revocation>,
    /// The operation that has promised, by returning, that no CPU uses it.
    pub(crate) promised_by: Option<u32>,
}

/// A change of the page tables that an entry does not know of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Revocation {
    pub(crate) op: u32,
    pub(crate) step: u64,
}

impl Life {
    pub(crate) const fn new(step: u64) -> Self {
        Self { fetched: step, revoked: None, promised_by: None }
    }
}

impl Entry {
    pub(crate) const fn covers(&self, va: u64) -> bool {
        va >> self.shift == self.va >> self.shift
    }

    /// Usable for `va` under `tag`.
    pub(crate) const fn matches(&self, tag: u16, va: u64) -> bool {
        (self.tag == tag || self.is_global) && self.covers(va)
    }

    fn is_same(&self, other: &Self) -> bool {
        Self { life: other.life, ..*self } == *other
    }
}

/// A cached upper part of a walk: it leads to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub(crate) tag: u16,
    /// Level of the table that it leads to: 1 to 3.
    pub(crate) level: u32,
    /// The address, shifted right by what one entry above that table covers.
    pub(crate) prefix: u64,
    pub(crate) table: FrameName,
    pub(crate) may_write: bool,
    pub(crate) is_user: bool,
    pub(crate) root: FrameName,
    pub(crate) fetched: u64,
}

/// log2 of the bytes that one entry of a table of `level` covers.
pub(crate) const fn span_shift(level: u32) -> u32 {
    12 + 9 * (level - 1)
}

impl Path {
    pub(crate) const fn is_for(&self, tag: u16, level: u32, va: u64) -> bool {
        self.tag == tag && self.level == level && self.maps(va)
    }

    const fn maps(&self, va: u64) -> bool {
        va >> span_shift(self.level + 1) == self.prefix
    }

    fn is_same(&self, other: &Self) -> bool {
        Self { fetched: other.fetched, ..*self } == *other
    }
}

/// One CPU's.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tlb {
    pub(crate) entries: Vec<Entry>,
    pub(crate) paths: Vec<Path>,
}

/// What a broadcast invalidation names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broadcast {
    pub(crate) va: u64,
    pub(crate) pages: u64,
    pub(crate) stride_shift: u32,
    pub(crate) tag: u16,
    pub(crate) globals: Globals,
    pub(crate) paths: Paths,
}

/// Whether global entries go too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Globals {
    Kept,
    Removed,
}

/// Whether cached paths go too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paths {
    Kept,
    Removed,
}

impl Tlb {
    /// Adds an entry unless it is there already.
    pub(crate) fn add(&mut self, entry: Entry) {
        if !self.entries.iter().any(|held| held.is_same(&entry)) {
            self.entries.push(entry);
        }
    }

    /// Adds a path unless it is there already.
    pub(crate) fn add_path(&mut self, path: Path) {
        if !self.paths.iter().any(|held| held.is_same(&path)) {
            self.paths.push(path);
        }
    }

    pub(crate) fn invlpg(&mut self, tag: u16, va: u64) {
        self.entries.retain(|entry| !entry.matches(tag, va));
        self.paths.retain(|path| path.tag != tag);
    }

    /// What a page fault at `va` removes: as INVLPG, but of the paths only those that map the address.
    pub(crate) fn fault(&mut self, tag: u16, va: u64) {
        self.entries.retain(|entry| !entry.matches(tag, va));
        self.paths.retain(|path| path.tag != tag || !path.maps(va));
    }

    pub(crate) fn invpcid_address(&mut self, tag: u16, va: u64) {
        self.entries.retain(|entry| entry.is_global || entry.tag != tag || !entry.covers(va));
        self.paths.retain(|path| path.tag != tag || !path.maps(va));
    }

    /// All of one tag: INVPCID 1, and a CR3 write that does not keep.
    pub(crate) fn tag(&mut self, tag: u16) {
        self.entries.retain(|entry| entry.is_global || entry.tag != tag);
        self.paths.retain(|path| path.tag != tag);
    }

    /// All tags: INVPCID 3, and a CR3 write without PCIDs.
    pub(crate) fn all_but_globals(&mut self) {
        self.entries.retain(|entry| entry.is_global);
        self.paths.clear();
    }

    pub(crate) fn all(&mut self) {
        self.entries.clear();
        self.paths.clear();
    }

    /// INVLPGB, once TLBSYNC has returned. The stride says how far apart the named pages are, not how large.
    pub(crate) fn broadcast(&mut self, what: &Broadcast) {
        let end = what.va + (what.pages << what.stride_shift);
        let is_named = |entry: &Entry| entry.va < end && entry.va + (1 << entry.shift) > what.va;
        let globals = what.globals == Globals::Removed;
        self.entries.retain(|e| !is_named(e) || if e.is_global { !globals } else { e.tag != what.tag });
        if what.paths == Paths::Removed {
            self.paths.retain(|path| path.tag != what.tag);
        }
    }
}
