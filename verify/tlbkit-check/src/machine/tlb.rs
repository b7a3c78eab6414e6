//! Everything that one CPU may have cached.
//!
//! A CPU may keep an entry for ever and may fetch one at any time. So this is no array of some size but the set of
//! all entries that the CPU could hold: every possible TLB content at once. A property that must hold whatever the
//! hardware does must hold for each entry of the set. What an instruction removes is what the manual guarantees and
//! nothing more: `tlbkit-arch` has the table.

use tlbkit::{Pcid, Stride, VirtAddr};
use tlbkit_arch::{Invalidation, Rights, Translation};

use super::memory::FrameName;

/// A translation that a CPU may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TlbEntry {
    pub(crate) page: Translation,
    pub(crate) frame: FrameName,
    pub(crate) rights: Rights,
    pub(crate) is_dirty: bool,
    /// The top-level table that the walk began at.
    pub(crate) root: FrameName,
    /// Where the page-table entry lies.
    pub(crate) pte_at: u64,
    pub(crate) life: Life,
    pub(crate) named: Named,
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

impl TlbEntry {
    fn is_same(&self, other: &Self) -> bool {
        Self { life: other.life, named: other.named, ..*self } == *other
    }
}

/// The INVLPGBs on their way that name something, by number, a bit each: it goes when one of them arrives, which is
/// before the TLBSYNC of the CPU that executed it is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Named(pub(super) u64);

impl Named {
    pub(super) const fn add(&mut self, number: usize) {
        self.0 |= 1 << number;
    }

    /// True if what it stands for is there at least as long as what `other` stands for.
    const fn outlives(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A cached upper part of a walk: it leads to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub(crate) reach: tlbkit_arch::Path,
    pub(crate) table: FrameName,
    pub(crate) rights: Rights,
    pub(crate) root: FrameName,
    pub(crate) fetched: u64,
    pub(crate) named: Named,
}

impl Path {
    fn is_same(&self, other: &Self) -> bool {
        Self { fetched: other.fetched, named: other.named, ..*self } == *other
    }
}

/// One CPU's.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tlb {
    pub(crate) entries: Vec<TlbEntry>,
    pub(crate) paths: Vec<Path>,
}

impl Tlb {
    /// Adds an entry unless it is there already, and will be there as long.
    pub(crate) fn add(&mut self, entry: TlbEntry) {
        if !self.entries.iter().any(|held| held.is_same(&entry) && held.named.outlives(entry.named)) {
            self.entries.push(entry);
        }
    }

    /// Adds a path unless it is there already, and will be there as long.
    pub(crate) fn add_path(&mut self, path: Path) {
        if !self.paths.iter().any(|held| held.is_same(&path) && held.named.outlives(path.named)) {
            self.paths.push(path);
        }
    }

    /// The INVLPGB of this number names what it invalidates, but for pages of the size that is `spared`.
    pub(super) fn name(&mut self, number: usize, what: &Invalidation, spared: Option<Stride>) {
        let is_named = |entry: &&mut TlbEntry| what.removes(&entry.page) && spared != Some(entry.page.stride);
        let entries = self.entries.iter_mut().filter(is_named);
        entries.for_each(|entry| entry.named.add(number));
        let paths = self.paths.iter_mut().filter(|path| what.removes_path(&path.reach));
        paths.for_each(|path| path.named.add(number));
    }

    /// These INVLPGBs have arrived.
    pub(super) fn remove_named(&mut self, by: Named) {
        self.entries.retain(|entry| !entry.named.meets(by));
        self.paths.retain(|path| !path.named.meets(by));
    }

    /// What a CPU may use for `va` under `pcid`.
    pub(crate) fn usable(&self, pcid: Pcid, va: VirtAddr) -> impl Iterator<Item = &TlbEntry> {
        self.entries.iter().filter(move |entry| entry.page.serves(pcid) && entry.page.covers(va))
    }

    /// Removes what an instruction invalidates.
    pub(crate) fn remove(&mut self, what: &Invalidation) {
        self.entries.retain(|entry| !what.removes(&entry.page));
        self.paths.retain(|path| !what.removes_path(&path.reach));
    }
}
