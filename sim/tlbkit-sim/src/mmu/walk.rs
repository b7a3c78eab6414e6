//! The walker: four or five levels of real table frames, entered as deep as the paging-structure caches allow.
//!
//! A paging-structure entry holds the table that it leads to and the rights that the levels above have left. Its arrays
//! are addressed by the kinds of [`Level`]: small = a PDE (leads to a page table), large = a PDPTE, huge = a PML4E. The
//! entries of a fifth level are not cached.

use tlbkit::{PhysAddr, VirtAddr};
use tlbkit_arch::{Pte, entry_at};

use super::access::{Cost, Fault, FaultKind, Hit, Need, Overlap, Source, Tables};
use super::cost::{Depth, WalkCost};
use super::entry::{self, EXECUTE, GRANT_ALL, PRESENT, PageSize, Spot, USER, WRITE};
use super::fill::Leaf;
use super::state::Mmu;

/// Rights in the positions that entries of tables and our data words share.
const SHARED_RIGHTS: u64 = WRITE | USER;

/// What an access asks of the walker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) va: VirtAddr,
    pub(super) need: Need,
    pub(super) overlap: Overlap,
}

/// Where the upper levels lead.
enum Descent {
    /// To a page table, which is to be read.
    Table(PartialWalk),
    /// To a page, which has been filled in.
    Page(Hit),
}

/// A walk on its way down.
#[derive(Clone, Copy)]
struct PartialWalk {
    /// The table to read next: 1 is a page table, 4 a PML4.
    level: u32,
    table: PhysAddr,
    grants: u64,
    cost: WalkCost,
}

impl Mmu {
    /// Walks, sets A and D, fills the paging-structure caches and then the arrays. What each step finds is worked up on
    /// the spot: most walks read one entry, and handing that through results takes longer than finding it.
    #[inline(always)]
    pub(super) fn walk(&mut self, request: Request, tables: &(impl Tables + ?Sized)) -> Result<Hit, Fault> {
        self.counters.walks += 1;
        let mut step = match self.path.lookup(path_spot(request.va, PageSize::Small)) {
            Some(data) => self.enter_by(data, PageSize::Small),
            None => match self.descend(request, tables)? {
                Descent::Table(step) => step,
                Descent::Page(hit) => return Ok(hit),
            },
        };
        step.level = 1;
        let leaf = self.read_entry(&mut step, request.va, tables);
        self.finish(request, step, leaf, tables)
    }

    /// Goes down to a page table, or to a larger page.
    #[inline(never)]
    fn descend(&mut self, request: Request, tables: &(impl Tables + ?Sized)) -> Result<Descent, Fault> {
        let mut step = self.enter_higher(request.va);
        while step.level > 1 {
            let (at, entry) = self.read_entry(&mut step, request.va, tables);
            if entry & PRESENT == 0 {
                return Err(self.refuse(request, FaultKind::NotPresent, step.cost));
            }
            if Pte(entry).is_leaf(step.level) {
                return Ok(Descent::Page(self.finish(request, step, (at, entry), tables)?));
            }
            if entry & Pte::ACCESSED == 0 {
                tables.set_accessed_dirty(at, Pte::ACCESSED);
            }
            step.level -= 1;
            step.table = PhysAddr(entry::frame_of(entry));
            self.remember(request.va, &step);
        }
        Ok(Descent::Table(step))
    }

    /// The deepest directory that a paging-structure entry leads to, else the root.
    fn enter_higher(&mut self, va: VirtAddr) -> PartialWalk {
        for kind in [PageSize::Large, PageSize::Huge] {
            if let Some(data) = self.path.lookup(path_spot(va, kind)) {
                return self.enter_by(data, kind);
            }
        }
        let level = self.config.levels as u32;
        PartialWalk { level, table: self.cr3.root(), grants: GRANT_ALL, cost: self.meter.walk() }
    }

    #[inline(always)]
    fn enter_by(&self, data: u64, kind: PageSize) -> PartialWalk {
        let table = PhysAddr(entry::frame_of(data));
        PartialWalk { level: kind as u32 + 1, table, grants: data & GRANT_ALL, cost: self.meter.walk() }
    }

    /// Reads the entry for `va` in the table of the step, which keeps the rights that are left.
    #[inline(always)]
    fn read_entry(&mut self, step: &mut PartialWalk, va: VirtAddr, tables: &(impl Tables + ?Sized)) -> (PhysAddr, u64) {
        let at = entry_at(step.table, va, step.level);
        let entry = tables.read(at);
        let depth = if Pte(entry).is_leaf(step.level) { Depth::Leaf } else { Depth::Upper };
        let line = self.near.touch(at);
        self.meter.reference(&mut step.cost, depth, line);
        step.grants &= grants_of(entry);
        (at, entry)
    }

    /// Caches the step that led to `step.table`.
    #[inline(never)]
    fn remember(&mut self, va: VirtAddr, step: &PartialWalk) {
        let kind = match step.level {
            1 => PageSize::Small,
            2 => PageSize::Large,
            3 => PageSize::Huge,
            _ => return,
        };
        if self.path.holds(kind) {
            let data = entry::data(step.table, step.grants, kind, self.tag);
            self.path.fill(path_spot(va, kind), data);
        }
    }

    /// The step found the last entry. Most often it grants what the access needs, and shows that it was used like that.
    #[inline(always)]
    fn finish(
        &mut self,
        request: Request,
        step: PartialWalk,
        (at, entry): (PhysAddr, u64),
        tables: &(impl Tables + ?Sized),
    ) -> Result<Hit, Fault> {
        let mut flags = step.grants | entry & self.kept;
        if !request.need.is_met_by(flags) || entry & Pte::ACCESSED == 0 {
            flags |= self.check_and_mark(request, (step.grants, step.cost), (at, entry), tables)?;
        }
        let size = PageSize::ALL[step.level as usize - 1];
        let frame = PhysAddr(entry::frame_of(entry) & !(size.bytes() - 1));
        let cost = self.close(step.cost, request.overlap);
        Ok(self.fill(request.va, &Leaf { frame, size, flags }, cost))
    }

    /// Refuses what the last entry does not grant, else sets A in it, and D for a store, and returns D if it was set.
    #[inline(never)]
    fn check_and_mark(
        &mut self,
        request: Request,
        (grants, cost): (u64, WalkCost),
        (at, entry): (PhysAddr, u64),
        tables: &(impl Tables + ?Sized),
    ) -> Result<u64, Fault> {
        if entry & PRESENT == 0 {
            return Err(self.refuse(request, FaultKind::NotPresent, cost));
        }
        if !request.need.is_granted_by(grants) {
            return Err(self.refuse(request, FaultKind::Protection, cost));
        }
        tables.set_accessed_dirty(at, Pte::ACCESSED | request.need.dirty());
        Ok(request.need.dirty())
    }

    /// A fault drops what is cached for the address: its translations and the path to it.
    #[cold]
    fn refuse(&mut self, request: Request, kind: FaultKind, cost: WalkCost) -> Fault {
        let Request { va, need, overlap } = request;
        self.forget_translation(va);
        self.forget_path(va, self.tag);
        self.counters.faults += 1;
        Fault { va, kind, access: need.access(), mode: need.mode(), cost: self.close(cost, overlap) }
    }

    #[inline(always)]
    fn close(&mut self, cost: WalkCost, overlap: Overlap) -> Cost {
        let cost = self.meter.finish(cost, overlap);
        self.counters.walk_cycles += u64::from(cost.cycles);
        self.counters.walk_references += u64::from(cost.references);
        cost
    }

    /// Drops the paging-structure entries of `tag` that map `va`.
    pub(super) fn forget_path(&mut self, va: VirtAddr, tag: u16) {
        for kind in PageSize::ALL {
            if let Some(place) = self.path.find_tagged(path_spot(va, kind), tag) {
                self.path.remove(place);
            }
        }
    }

    /// The fault of an address that no table can map.
    #[cold]
    pub(super) fn refuse_address(&mut self, request: Request) -> Fault {
        let Request { va, need, .. } = request;
        self.counters.faults += 1;
        let cost = Cost { source: Source::Walk, references: 0, cycles: 0 };
        Fault { va, kind: FaultKind::NonCanonical, access: need.access(), mode: need.mode(), cost }
    }
}

/// Where a paging-structure entry of `kind` for `va` is kept: one level coarser than the page size of the same name.
#[inline(always)]
const fn path_spot(va: VirtAddr, kind: PageSize) -> Spot {
    Spot::new(kind.page_of(va) >> 9, kind)
}

/// What one entry of a table grants.
#[inline(always)]
const fn grants_of(entry: u64) -> u64 {
    let execute = if entry & Pte::NO_EXECUTE == 0 { EXECUTE } else { 0 };
    entry & SHARED_RIGHTS | execute
}
