//! A TLB as the manual allows it at its worst: it evicts nothing while there is room, and an instruction removes what
//! the manual guarantees and nothing more.
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
//! | page fault | the page | kept | the page | those that map the address |

use heapless::Vec;
use tlbkit::PhysAddr;

use crate::counters::{self, Counter};

/// A tag: what CR3 carries in its low bits.
pub(super) type Tag = u16;

/// More than the workloads touch.
const ENTRIES: usize = 2048;
const PATHS: usize = 512;

/// A translation that the CPU holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) tag: Tag,
    /// log2 of the bytes that it translates.
    pub(super) shift: u32,
    /// First address that it translates.
    pub(super) va: u64,
    pub(super) frame: PhysAddr,
    pub(super) may_write: bool,
    pub(super) is_user: bool,
    pub(super) is_dirty: bool,
    pub(super) is_global: bool,
    /// The top-level table that the walk began at.
    pub(super) root: PhysAddr,
}

/// A table that a walk has reached, with the permissions so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) table: PhysAddr,
    /// 1 for tables of base pages, up to 4 for the root.
    pub(super) level: u32,
    pub(super) may_write: bool,
    pub(super) is_user: bool,
}

/// A cached upper part of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) tag: Tag,
    /// An address that it leads to.
    pub(super) va: u64,
    pub(super) reached: Reached,
}

/// log2 of the bytes that one entry of a table of `level` covers.
pub(super) const fn span_shift(level: u32) -> u32 {
    12 + 9 * (level - 1)
}

impl Entry {
    const fn covers(&self, va: u64) -> bool {
        va >> self.shift == self.va >> self.shift
    }

    const fn matches(&self, tag: Tag, va: u64) -> bool {
        (self.tag == tag || self.is_global) && self.covers(va)
    }

    /// Where it leads `va`, to a base page.
    pub(super) const fn target(&self, va: u64) -> PhysAddr {
        let offset = va & ((1 << self.shift) - 1) & !0xfff;
        PhysAddr(self.frame.0 + offset)
    }
}

impl Path {
    const fn maps(&self, va: u64) -> bool {
        let shift = span_shift(self.reached.level + 1);
        va >> shift == self.va >> shift
    }
}

/// Adds `item`, in place of the oldest if there is no room: a check may miss something then, which is counted.
fn add_to<T, const N: usize>(items: &mut Vec<T, N>, item: T) {
    if let Err(item) = items.push(item) {
        counters::add(Counter::Evicted, 1);
        items.remove(0);
        let _ = items.push(item);
    }
}

/// One CPU's.
pub(super) struct Tlb {
    entries: Vec<Entry, ENTRIES>,
    paths: Vec<Path, PATHS>,
}

impl Tlb {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), paths: Vec::new() }
    }

    /// The translation of `va`.
    pub(super) fn find(&self, tag: Tag, va: u64) -> Option<Entry> {
        self.entries.iter().find(|entry| entry.matches(tag, va)).copied()
    }

    /// The deepest cached path to `va`.
    pub(super) fn path(&self, tag: Tag, va: u64) -> Option<Path> {
        self.paths.iter().filter(|path| path.tag == tag && path.maps(va)).min_by_key(|path| path.reached.level).copied()
    }

    /// Adds what a walk has found, in place of what the CPU had for the page under this tag.
    pub(super) fn add(&mut self, entry: Entry) {
        self.entries.retain(|held| !(held.tag == entry.tag && held.covers(entry.va)));
        add_to(&mut self.entries, entry);
    }

    /// Adds a path, unless the CPU has one already: it keeps the old one as long as it may.
    pub(super) fn add_path(&mut self, path: Path) {
        let level = path.reached.level;
        if self.paths.iter().any(|held| held.tag == path.tag && held.reached.level == level && held.maps(path.va)) {
            return;
        }
        add_to(&mut self.paths, path);
    }

    pub(super) fn invlpg(&mut self, tag: Tag, va: u64) {
        self.entries.retain(|entry| !entry.matches(tag, va));
        self.paths.retain(|path| path.tag != tag);
    }

    /// A page fault at `va`.
    pub(super) fn fault(&mut self, tag: Tag, va: u64) {
        self.entries.retain(|entry| !entry.matches(tag, va));
        self.paths.retain(|path| path.tag != tag || !path.maps(va));
    }

    pub(super) fn page_of_tag(&mut self, tag: Tag, va: u64) {
        self.entries.retain(|entry| entry.is_global || entry.tag != tag || !entry.covers(va));
        self.paths.retain(|path| path.tag != tag || !path.maps(va));
    }

    pub(super) fn tag(&mut self, tag: Tag) {
        self.entries.retain(|entry| entry.is_global || entry.tag != tag);
        self.paths.retain(|path| path.tag != tag);
    }

    pub(super) fn all_but_globals(&mut self) {
        self.entries.retain(|entry| entry.is_global);
        self.paths.clear();
    }

    pub(super) fn all(&mut self) {
        self.entries.clear();
        self.paths.clear();
    }
}
