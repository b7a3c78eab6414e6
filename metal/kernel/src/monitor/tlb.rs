//! A TLB that does the worst that the manual allows. It evicts nothing while there is room, and an instruction removes
//! what the manual guarantees and nothing more. The table of that is in `tlbkit-arch`.

use heapless::Vec;
use tlbkit::{Pcid, PhysAddr, VirtAddr};
use tlbkit_arch::{Invalidation, Rights, Translation};

use crate::counters::{self, Counter};

/// More than the workloads touch.
const ENTRIES: usize = 2048;
const PATHS: usize = 512;

/// A translation that the CPU holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct TlbEntry {
    pub(super) page: Translation,
    pub(super) frame: PhysAddr,
    pub(super) rights: Rights,
    pub(super) is_dirty: bool,
    /// The top-level table that the walk began at.
    pub(super) root: PhysAddr,
}

/// A paging-structure-cache entry: the table that it points to, with the permissions so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) reach: tlbkit_arch::Path,
    pub(super) table: PhysAddr,
    pub(super) rights: Rights,
}

impl TlbEntry {
    /// Where it leads `va`, to a base page.
    pub(super) const fn target(&self, va: u64) -> PhysAddr {
        PhysAddr(self.frame.0 + (VirtAddr(va).page().0 - self.page.start.0))
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

/// The cached translations of one CPU.
pub(super) struct Tlb {
    entries: Vec<TlbEntry, ENTRIES>,
    paths: Vec<Path, PATHS>,
}

impl Tlb {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), paths: Vec::new() }
    }

    /// The translation of `va`.
    pub(super) fn find(&self, tag: Pcid, va: VirtAddr) -> Option<TlbEntry> {
        self.entries.iter().find(|entry| entry.page.serves(tag) && entry.page.covers(va)).copied()
    }

    /// The deepest paging-structure-cache entry for `va`.
    pub(super) fn path(&self, tag: Pcid, va: VirtAddr) -> Option<Path> {
        let usable = self.paths.iter().filter(|path| path.reach.pcid == tag && path.reach.leads_to(va));
        usable.min_by_key(|path| path.reach.level).copied()
    }

    /// Adds the result of a walk, replacing what the CPU had for the page under this PCID.
    pub(super) fn add(&mut self, entry: TlbEntry) {
        self.entries.retain(|held| !(held.page.pcid == entry.page.pcid && held.page.covers(entry.page.start)));
        add_to(&mut self.entries, entry);
    }

    /// Adds a paging-structure-cache entry, unless the CPU has one already, which it keeps as long as it may.
    pub(super) fn add_path(&mut self, path: Path) {
        let is_same = |held: &Path| {
            (held.reach.pcid, held.reach.level) == (path.reach.pcid, path.reach.level)
                && held.reach.leads_to(path.reach.start)
        };
        if !self.paths.iter().any(is_same) {
            add_to(&mut self.paths, path);
        }
    }

    /// Removes what an instruction invalidates.
    pub(super) fn remove(&mut self, what: &Invalidation) {
        self.entries.retain(|entry| !what.removes(&entry.page));
        self.paths.retain(|path| !what.removes_path(&path.reach));
    }
}
