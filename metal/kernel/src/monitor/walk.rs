//! The page walker: from the loaded root, or from an entry of the paging-structure caches, to a leaf of the guest's
//! tables; for an access, or speculatively, as a CPU may do at any time.
//!
//! Two things are wrong whatever the guest does: a walk through a table that has been freed, and a translation that is
//! found although another root is loaded than the one that it was fetched from.

use core::sync::atomic::{AtomicU64, Ordering};

use tlbkit::{PhysAddr, VirtAddr};
use tlbkit_arch::addr::TOP_LEVEL;
use tlbkit_arch::{Instruction, Pte, Rights, Translation, WalkStep, entry_at, span_start};
use tlbkit_pmap::{Memory, Purpose};

use super::state::{Core, Ring};
use super::tlb::{Path, TlbEntry};
use crate::arch::gates::{FAULT_PRESENT, FAULT_USER, FAULT_WRITE};
use crate::memory::{Ram, frames};
use crate::report;

/// Pages that programs have used lately: where a speculating CPU looks.
const WATCHED: usize = 64;
static PAGES: [AtomicU64; WATCHED] = [const { AtomicU64::new(0) }; WATCHED];
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Why a translation is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// A load.
    Load(Ring),
    /// A store.
    Store(Ring),
    /// Speculation.
    Guess,
}

/// A table that a walk has reached, with the rights so far.
#[derive(Clone, Copy, Debug)]
struct Reached {
    table: PhysAddr,
    level: u32,
    rights: Rights,
}

/// The error code of a page fault.
pub(super) type PageFault = u64;

impl Asker {
    fn is_store(self) -> bool {
        matches!(self, Self::Store(_))
    }

    fn is_program(self) -> bool {
        matches!(self, Self::Load(Ring::Program) | Self::Store(Ring::Program))
    }

    fn may_use(self, entry: &TlbEntry) -> bool {
        (entry.rights.may_write || !self.is_store()) && (entry.rights.is_user || !self.is_program())
    }

    fn fault(self, present: u64) -> PageFault {
        let write = if self.is_store() { FAULT_WRITE } else { 0 };
        present | write | if self.is_program() { FAULT_USER } else { 0 }
    }
}

impl Core {
    /// What the CPU uses for an access to `va`, fetched if it holds nothing.
    pub(super) fn translate(&mut self, va: u64, asker: Asker) -> Result<TlbEntry, PageFault> {
        watch(va);
        let entry = match self.tlb.find(self.tag(), VirtAddr(va)) {
            // A store through a clean entry sets the D bit in the tables, by walking again.
            Some(entry) if entry.is_dirty || !entry.rights.may_write || !asker.is_store() => entry,
            _ => match self.walk(va, self.tlb.path(self.tag(), VirtAddr(va)), asker) {
                Some(entry) => {
                    self.tlb.add(entry);
                    entry
                }
                None => return Err(self.fail(va, asker, 0)),
            },
        };
        if !asker.may_use(&entry) {
            return Err(self.fail(va, asker, FAULT_PRESENT));
        }
        self.check_use(va, &entry);
        Ok(entry)
    }

    /// A page fault invalidates what the CPU has cached for the page.
    fn fail(&mut self, va: u64, asker: Asker, present: u64) -> PageFault {
        self.tlb.remove(&Instruction::PageFault(VirtAddr(va)).invalidates(self.current_tag()));
        asker.fault(present)
    }

    fn check_use(&self, va: u64, entry: &TlbEntry) {
        let (root, loaded) = (entry.root.0, self.root().0);
        if !entry.page.is_global && root != loaded {
            report::failure(&format_args!(
                "{va:#x} under tag {} is translated by an entry of root {root:#x} while {loaded:#x} is loaded",
                entry.page.pcid.0
            ));
        }
        let target = entry.target(va);
        if frames::purpose(target) != Some(Purpose::Data) {
            report::failure(&format_args!("{va:#x} leads to the frame {:#x}, which has been freed", target.0));
        }
    }

    /// Guesses: walks to some of the pages that programs have used lately, from wherever it may. What the CPU holds
    /// already it keeps: it is older.
    pub(super) fn speculate(&mut self, walks: u32) {
        for _ in 0..walks {
            let random = self.random.bits() as usize;
            // Relaxed: a guess may be about any page.
            let va = PAGES[random / 2 % WATCHED].load(Ordering::Relaxed);
            let path = if random.is_multiple_of(2) { self.tlb.path(self.tag(), VirtAddr(va)) } else { None };
            if let Some(entry) = self.walk(va, path, Asker::Guess)
                && self.tlb.find(self.tag(), VirtAddr(va)).is_none()
            {
                self.tlb.add(entry);
            }
        }
    }

    /// Walks from `path` or from the root, remembers the way, and returns the leaf; nothing if none is present.
    fn walk(&mut self, va: u64, path: Option<Path>, asker: Asker) -> Option<TlbEntry> {
        let page = VirtAddr(va);
        let root = Reached { table: self.root(), level: TOP_LEVEL, rights: Rights::ALL };
        let from = |path: Path| Reached { table: path.table, level: path.reach.level, rights: path.rights };
        let mut at = path.map_or(root, from);
        loop {
            self.check_table(va, at);
            let slot = entry_at(at.table, page, at.level);
            let is_stored_to = |pte: Pte| pte.is_leaf(at.level) && at.rights.may_write && asker.is_store();
            let pte = fetch(slot, |pte| if is_stored_to(pte) { Pte::DIRTY } else { 0 })?;
            let (pcid, start, rights) = (self.tag(), span_start(page, at.level), at.rights.below(pte));
            match pte.step(at.level) {
                WalkStep::NotPresent => return None,
                WalkStep::Page(frame, stride) => {
                    let is_global = pte.has(Pte::GLOBAL) && self.has_globals();
                    let page = Translation { pcid, start, stride, is_global };
                    return Some(TlbEntry { page, frame, rights, is_dirty: pte.has(Pte::DIRTY), root: self.root() });
                }
                WalkStep::Table(table) => {
                    at = Reached { table, level: at.level - 1, rights };
                    let reach = tlbkit_arch::Path { pcid, start, level: at.level };
                    self.tlb.add_path(Path { reach, table, rights });
                }
            }
        }
    }

    fn check_table(&self, va: u64, at: Reached) {
        if frames::purpose(at.table) != Some(Purpose::Table) {
            report::failure(&format_args!(
                "a walk to {va:#x} reached the table {:#x} of level {}, which has been freed",
                at.table.0, at.level
            ));
        }
    }
}

/// Reads an entry and sets its A bit and `more`, as one step; nothing if it is not present.
fn fetch(slot: PhysAddr, more: impl Fn(Pte) -> u64) -> Option<Pte> {
    let mut pte = Pte(Ram.load(slot));
    while pte.has(Pte::PRESENT) {
        let dirty = if pte.has(Pte::WRITE) { more(pte) } else { 0 };
        let marked = pte.with(Pte::ACCESSED | dirty);
        if marked == pte {
            return Some(pte);
        }
        match Ram.compare_exchange(slot, pte.0, marked.0) {
            Ok(_) => return Some(marked),
            Err(found) => pte = Pte(found),
        }
    }
    None
}

fn watch(va: u64) {
    let page = VirtAddr(va).page().0;
    // Relaxed, all: guesses may be about any page.
    if PAGES.iter().all(|one| one.load(Ordering::Relaxed) != page) {
        PAGES[NEXT.fetch_add(1, Ordering::Relaxed) as usize % WATCHED].store(page, Ordering::Relaxed);
    }
}
