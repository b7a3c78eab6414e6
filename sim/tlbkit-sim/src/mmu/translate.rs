//! One access: it looks in the first level, then in the second level, and then it walks.

use tlbkit::VirtAddr;
use tlbkit_arch::addr::is_canonical_within;

use super::access::{Access, Fault, Hit, Need, Overlap, Privilege, Tables};
use super::cost::Meter;
use super::entry::{PageSize, Spot};
use super::fill::{Held, address};
use super::level::Level;
use super::state::Mmu;
use super::walk::Request;

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
        mode: Privilege,
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
        if !is_canonical_within(va, self.half) {
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
