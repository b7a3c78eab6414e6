//! One access: first level, second level, walk.

use tlbkit::{PhysAddr, VirtAddr};

use super::access::{Access, Cost, Fault, Hit, Mode, Need, Overlap, Tables, is_canonical};
use super::cost::Meter;
use super::counters::{Loss, LossCause};
use super::entry::{self, PageSize, Spot};
use super::epochs::Displaced;
use super::level::{Globals, Level};
use super::state::{Mmu, Pieces};
use super::walk::{Leaf, Request};

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
        let need = Need::new(access, mode);
        match self.l1.lookup_again(va) {
            Some(data) if need.is_met_by(data) => Ok(Hit { pa: address(data, va), cost: Meter::l1() }),
            _ => self.search(va, need, overlap, tables),
        }
    }

    /// An access to another page than the last, or one that its entry does not allow. It becomes part of the caller's
    /// loop: handing request and answer over would take longer than some of the answers.
    #[inline(always)]
    fn search(
        &mut self,
        va: VirtAddr,
        need: Need,
        overlap: Overlap,
        tables: &(impl Tables + ?Sized),
    ) -> Result<Hit, Fault> {
        let request = Request { va, need, overlap };
        if !is_canonical(va, self.half) {
            return Err(self.refuse_address(request));
        }
        let first = find(&mut self.l1, va, need);
        if let Some(held) = first
            && need.is_met_by(held.data)
        {
            return Ok(self.answer(va, held, Meter::l1()));
        }
        self.counters.l1_misses += 1;
        let second = find(&mut self.stlb, va, need);
        if let Some(held) = second
            && need.is_met_by(held.data)
        {
            self.counters.stlb_hits += 1;
            if first.is_some() {
                self.forget_first_level(va);
            }
            self.fill_l1(va, held);
            let cost = self.meter.stlb(overlap);
            return Ok(self.answer(va, held, cost));
        }
        if first.is_some() || second.is_some() {
            self.forget_translation(va);
        }
        self.walk(request, tables)
    }

    /// The answer to an access, by an entry that is the latest of its set.
    #[inline(always)]
    fn answer(&mut self, va: VirtAddr, held: Held, cost: Cost) -> Hit {
        let data = entry::base_page_of(held.data, va, held.size);
        self.l1.remember(va, data);
        Hit { pa: address(data, va), cost }
    }

    /// Fills both levels with what a walk found.
    #[inline(always)]
    pub(super) fn fill(&mut self, va: VirtAddr, leaf: &Leaf, cost: Cost) -> Hit {
        if leaf.size != PageSize::Small {
            return self.fill_larger(va, leaf, cost);
        }
        let data = entry::data(leaf.frame, leaf.flags, PageSize::Small, self.tag);
        self.fill_both(va, Held { data, size: PageSize::Small }, cost)
    }

    /// Fills the part of a page around `va` that this CPU caches as one.
    #[inline(never)]
    fn fill_larger(&mut self, va: VirtAddr, leaf: &Leaf, cost: Cost) -> Hit {
        let size = self.cached_as[leaf.size as usize];
        if size != leaf.size {
            self.pieces = Pieces::Some;
        }
        let within = va.0 & (leaf.size.bytes() - 1) & !(size.bytes() - 1);
        let data = entry::data(PhysAddr(leaf.frame.0 + within), leaf.flags, leaf.size, self.tag);
        self.fill_both(va, Held { data, size }, cost)
    }

    #[inline(always)]
    fn fill_both(&mut self, va: VirtAddr, entry: Held, cost: Cost) -> Hit {
        if self.stlb.holds(entry.size) {
            match self.stlb.fill(Spot::of(va, entry.size), entry.data) {
                Displaced::Nothing => {}
                Displaced::FlushedSelf => self.counters.refills += 1,
                Displaced::Living => self.counters.lost.add(LossCause::Capacity, Loss { l1: 0, stlb: 1 }),
            }
        }
        self.fill_l1(va, entry);
        self.answer(va, entry, cost)
    }

    #[inline(always)]
    fn fill_l1(&mut self, va: VirtAddr, entry: Held) {
        if let Displaced::Living = self.l1.fill(Spot::of(va, entry.size), entry.data) {
            self.counters.lost.add(LossCause::Capacity, Loss { l1: 1, stlb: 0 });
        }
    }

    /// Drops what both levels hold for `va` under the loaded tag and globally: it did not suffice, or its page faulted.
    pub(super) fn forget_translation(&mut self, va: VirtAddr) {
        self.forget_first_level(va);
        let stlb = u64::from(self.stlb.remove_page(va, self.tag, Globals::Too));
        self.counters.lost.add(LossCause::Rewalk, Loss { l1: 0, stlb });
    }

    fn forget_first_level(&mut self, va: VirtAddr) {
        let l1 = u64::from(self.l1.remove_page(va, self.tag, Globals::Too));
        self.counters.lost.add(LossCause::Rewalk, Loss { l1, stlb: 0 });
    }
}

/// An entry.
#[derive(Clone, Copy, Debug)]
struct Held {
    data: u64,
    size: PageSize,
}

/// What `level` holds for the page around `va`: if it can, an entry that meets the need. Another one is no hit: the
/// tables decide.
#[inline(always)]
fn find(level: &mut Level, va: VirtAddr, need: Need) -> Option<Held> {
    match level.lookup(Spot::of(va, PageSize::Small)) {
        Some(data) if need.is_met_by(data) => Some(Held { data, size: PageSize::Small }),
        None if !level.has_larger() => None,
        small => find_larger(level, va, need, small),
    }
}

#[inline(never)]
fn find_larger(level: &mut Level, va: VirtAddr, need: Need, small: Option<u64>) -> Option<Held> {
    let mut held = small.map(|data| Held { data, size: PageSize::Small });
    for size in [PageSize::Large, PageSize::Huge] {
        if let Some(data) = level.lookup(Spot::of(va, size)) {
            held = Some(Held { data, size });
            if need.is_met_by(data) {
                break;
            }
        }
    }
    held
}

/// The physical address of the byte at `va`, whose base page has this data.
#[inline(always)]
const fn address(data: u64, va: VirtAddr) -> PhysAddr {
    PhysAddr(entry::frame_of(data) | va.0 & (PageSize::Small.bytes() - 1))
}
