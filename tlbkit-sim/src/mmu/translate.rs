//! One access: first level, second level, walk.

use tlbkit::{PhysAddr, VirtAddr};

use super::access::{Access, Fault, Hit, Mode, Overlap, Tables, needed};
use super::array::Displaced;
use super::config::Levels;
use super::cost::Meter;
use super::counters::{Cause, Loss};
use super::entry::{self, PageSize, Spot};
use super::level::Globals;
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
        let request = Request { va, access, mode, overlap };
        if !is_canonical(va, self.unused_bits) {
            return Err(self.refuse_address(request));
        }
        let small = PageSize::Small;
        let (spot, need) = (Spot::of(va, small), needed(access, mode));
        let mut held = Held::Nothing;
        if let Some(data) = self.l1.lookup(spot) {
            if data & need == need {
                return Ok(Hit { pa: address(data, va, small), cost: Meter::l1() });
            }
            held = Held::Insufficient;
        }
        if self.l1.has_larger()
            && let Some(pa) = self.larger_in_first_level(va, need, &mut held)
        {
            return Ok(Hit { pa, cost: Meter::l1() });
        }
        self.counters.l1_misses += 1;
        self.beyond_first_level(request, need, held, tables)
    }

    #[inline(never)]
    fn larger_in_first_level(&mut self, va: VirtAddr, need: u64, held: &mut Held) -> Option<PhysAddr> {
        for size in [PageSize::Large, PageSize::Huge] {
            if let Some(data) = self.l1.lookup(Spot::of(va, size)) {
                if data & need == need {
                    return Some(address(data, va, size));
                }
                *held = Held::Insufficient;
            }
        }
        None
    }

    fn beyond_first_level(
        &mut self,
        request: Request,
        need: u64,
        mut held: Held,
        tables: &(impl Tables + ?Sized),
    ) -> Result<Hit, Fault> {
        if let Some((size, data)) = self.second_level(request.va, need, &mut held) {
            self.counters.stlb_hits += 1;
            if held == Held::Insufficient {
                self.forget_first_level(request.va);
            }
            self.fill_l1(Spot::of(request.va, size), data);
            return Ok(Hit { pa: address(data, request.va, size), cost: self.meter.stlb(request.overlap) });
        }
        self.walk_and_fill(request, held, tables)
    }

    /// What the second level holds for the access. An entry that does not allow it is no hit: the tables decide.
    #[inline(always)]
    fn second_level(&mut self, va: VirtAddr, need: u64, held: &mut Held) -> Option<(PageSize, u64)> {
        if let Some(data) = self.stlb.lookup(Spot::of(va, PageSize::Small)) {
            if data & need == need {
                return Some((PageSize::Small, data));
            }
            *held = Held::Insufficient;
        }
        if self.stlb.has_larger() { self.larger_in_second_level(va, need, held) } else { None }
    }

    #[inline(never)]
    fn larger_in_second_level(&mut self, va: VirtAddr, need: u64, held: &mut Held) -> Option<(PageSize, u64)> {
        for size in [PageSize::Large, PageSize::Huge] {
            if let Some(data) = self.stlb.lookup(Spot::of(va, size)) {
                if data & need == need {
                    return Some((size, data));
                }
                *held = Held::Insufficient;
            }
        }
        None
    }

    #[inline(never)]
    fn walk_and_fill(&mut self, request: Request, held: Held, tables: &(impl Tables + ?Sized)) -> Result<Hit, Fault> {
        let leaf = self.walk(request, tables)?;
        let va = request.va;
        if held == Held::Insufficient {
            self.forget_translation(va);
        }
        let (size, data) = self.cached_piece(va, &leaf);
        let spot = Spot::of(va, size);
        if self.stlb.holds(size) {
            match self.stlb.fill(spot, data) {
                Displaced::Nothing => {}
                Displaced::FlushedSelf => self.counters.refills += 1,
                Displaced::Living => self.counters.lost.add(Cause::Capacity, Loss { l1: 0, stlb: 1 }),
            }
        }
        self.fill_l1(spot, data);
        Ok(Hit { pa: address(data, va, size), cost: leaf.cost })
    }

    #[inline(always)]
    fn fill_l1(&mut self, spot: Spot, data: u64) {
        if let Displaced::Living = self.l1.fill(spot, data) {
            self.counters.lost.add(Cause::Capacity, Loss { l1: 1, stlb: 0 });
        }
    }

    /// The entry for the part of a page around `va` that this CPU caches as one.
    #[inline(always)]
    fn cached_piece(&mut self, va: VirtAddr, leaf: &Leaf) -> (PageSize, u64) {
        if leaf.size == PageSize::Small {
            return (leaf.size, entry::data(leaf.frame, leaf.flags, leaf.size, self.tag));
        }
        let size = self.cached_as[leaf.size as usize];
        if size != leaf.size {
            self.pieces = Pieces::Some;
        }
        let within = va.0 & (leaf.size.bytes() - 1) & !(size.bytes() - 1);
        (size, entry::data(PhysAddr(leaf.frame.0 + within), leaf.flags, leaf.size, self.tag))
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
enum Held {
    /// Nothing.
    Nothing,
    /// An entry that does not allow the access, or whose D bit is not known to be set.
    Insufficient,
}

/// The physical address of the byte at `va` in a page of `size`.
#[inline(always)]
const fn address(data: u64, va: VirtAddr, size: PageSize) -> PhysAddr {
    PhysAddr(entry::frame_of(data) | va.0 & (size.bytes() - 1))
}

/// Bits of an address that no level of the tables looks at.
pub(super) const fn unused_bits(levels: Levels) -> u32 {
    match levels {
        Levels::Four => 16,
        Levels::Five => 7,
    }
}

/// True if the unused bits repeat the topmost one that is used.
#[inline(always)]
pub(super) const fn is_canonical(va: VirtAddr, unused_bits: u32) -> bool {
    (va.0 << unused_bits) as i64 >> unused_bits == va.0 as i64
}
