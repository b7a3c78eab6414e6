//! One access: first level, second level, walk.

use tlbkit::{PhysAddr, VirtAddr};

use super::access::{Access, Fault, Hit, Mode, Overlap, Tables, needed};
use super::array::Displaced;
use super::config::Levels;
use super::cost::Meter;
use super::counters::{Cause, Loss};
use super::entry::{self, PageSize, Spot};
use super::level::{Globals, Level};
use super::walk::{Leaf, Request};
use super::{Mmu, Pieces};

impl Mmu {
    /// Translates the byte at `va`. `tables` is the memory that the walker reads, should it come to that.
    ///
    /// # Errors
    /// The fault that the instruction would raise.
    #[inline]
    pub fn translate(
        &mut self,
        va: VirtAddr,
        access: Access,
        mode: Mode,
        overlap: Overlap,
        tables: &(impl Tables + ?Sized),
    ) -> Result<Hit, Fault> {
        self.counters.accesses += 1;
        let need = needed(access, mode);
        if !is_canonical(va, self.half) {
            return Err(self.refuse_address(Request { va, need, access, mode, overlap }));
        }
        match self.l1.lookup_again(Spot::of(va, PageSize::Small)) {
            Some(data) if data & need == need => Ok(Hit { pa: address(data, va, PageSize::Small), cost: Meter::l1() }),
            _ => self.search(Request { va, need, access, mode, overlap }, tables),
        }
    }

    /// An access to another page than the last, or one that its entry does not allow.
    #[inline(never)]
    fn search(&mut self, request: Request, tables: &(impl Tables + ?Sized)) -> Result<Hit, Fault> {
        let va = request.va;
        let mut held = Held::Nothing;
        if let Some((size, data)) = find(&mut self.l1, va, request.need, &mut held) {
            self.l1.remember(Spot::of(va, size), data);
            return Ok(Hit { pa: address(data, va, size), cost: Meter::l1() });
        }
        self.counters.l1_misses += 1;
        if let Some((size, data)) = find(&mut self.stlb, va, request.need, &mut held) {
            self.counters.stlb_hits += 1;
            if held == Held::Insufficient {
                self.forget_first_level(va);
            }
            self.fill_l1(Spot::of(va, size), data);
            return Ok(Hit { pa: address(data, va, size), cost: self.meter.stlb(request.overlap) });
        }
        self.walk(request, held, tables)
    }

    /// Fills both levels with what a walk found.
    #[inline(always)]
    pub(super) fn fill(&mut self, va: VirtAddr, held: Held, leaf: &Leaf) -> PhysAddr {
        if held == Held::Insufficient {
            self.forget_translation(va);
        }
        if leaf.size != PageSize::Small {
            return self.fill_larger(va, leaf);
        }
        let data = entry::data(leaf.frame, leaf.flags, PageSize::Small, self.tag);
        self.fill_both(va, PageSize::Small, data);
        address(data, va, PageSize::Small)
    }

    /// Fills the part of a page around `va` that this CPU caches as one.
    #[inline(never)]
    fn fill_larger(&mut self, va: VirtAddr, leaf: &Leaf) -> PhysAddr {
        let size = self.cached_as[leaf.size as usize];
        if size != leaf.size {
            self.pieces = Pieces::Some;
        }
        let within = va.0 & (leaf.size.bytes() - 1) & !(size.bytes() - 1);
        let data = entry::data(PhysAddr(leaf.frame.0 + within), leaf.flags, leaf.size, self.tag);
        self.fill_both(va, size, data);
        address(data, va, size)
    }

    #[inline(always)]
    fn fill_both(&mut self, va: VirtAddr, size: PageSize, data: u64) {
        let spot = Spot::of(va, size);
        if self.stlb.holds(size) {
            match self.stlb.fill(spot, data) {
                Displaced::Nothing => {}
                Displaced::FlushedSelf => self.counters.refills += 1,
                Displaced::Living => self.counters.lost.add(Cause::Capacity, Loss { l1: 0, stlb: 1 }),
            }
        }
        self.fill_l1(spot, data);
    }

    #[inline(always)]
    fn fill_l1(&mut self, spot: Spot, data: u64) {
        if let Displaced::Living = self.l1.fill_latest(spot, data) {
            self.counters.lost.add(Cause::Capacity, Loss { l1: 1, stlb: 0 });
        }
    }

    /// Drops what both levels hold for `va` under the loaded tag and globally: it did not suffice, or its page faulted.
    pub(super) fn forget_translation(&mut self, va: VirtAddr) {
        self.forget_first_level(va);
        let stlb = u64::from(self.stlb.remove_page(va, self.tag, Globals::Too));
        self.counters.lost.add(Cause::Rewalk, Loss { l1: 0, stlb });
    }

    fn forget_first_level(&mut self, va: VirtAddr) {
        let l1 = u64::from(self.l1.remove_page(va, self.tag, Globals::Too));
        self.counters.lost.add(Cause::Rewalk, Loss { l1, stlb: 0 });
    }
}

/// What the arrays held for an access that they could not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    /// Nothing.
    Nothing,
    /// An entry that does not allow the access, or whose D bit is not known to be set: no hit, the tables decide.
    Insufficient,
}

/// What a level holds for the page around `va`, if it suffices.
#[inline(always)]
fn find(level: &mut Level, va: VirtAddr, need: u64, held: &mut Held) -> Option<(PageSize, u64)> {
    if let Some(data) = level.lookup(Spot::of(va, PageSize::Small)) {
        if data & need == need {
            return Some((PageSize::Small, data));
        }
        *held = Held::Insufficient;
    }
    if level.has_larger() { find_larger(level, va, need, held) } else { None }
}

#[inline(never)]
fn find_larger(level: &mut Level, va: VirtAddr, need: u64, held: &mut Held) -> Option<(PageSize, u64)> {
    for size in [PageSize::Large, PageSize::Huge] {
        if let Some(data) = level.lookup(Spot::of(va, size)) {
            if data & need == need {
                return Some((size, data));
            }
            *held = Held::Insufficient;
        }
    }
    None
}

/// The physical address of the byte at `va` in a page of `size`.
#[inline(always)]
const fn address(data: u64, va: VirtAddr, size: PageSize) -> PhysAddr {
    PhysAddr(entry::frame_of(data) | va.0 & (size.bytes() - 1))
}

/// How many addresses are canonical below zero, and as many from zero on.
pub(super) const fn half_of(levels: Levels) -> u64 {
    match levels {
        Levels::Four => 1 << 47,
        Levels::Five => 1 << 56,
    }
}

/// True if the bits that no level of the tables looks at repeat the topmost one that is used.
#[inline(always)]
pub(super) const fn is_canonical(va: VirtAddr, half: u64) -> bool {
    va.0.wrapping_add(half) < 2 * half
}
