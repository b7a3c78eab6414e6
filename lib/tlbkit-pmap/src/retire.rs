//! Pages that a program has given away, and whose frames and addresses come back after a grace period
//! ([`tlbkit::GracePeriods`]): an munmap that interrupts nobody.
//!
//! The addresses are withheld from [`Vm::map`] and [`Vm::enter`] meanwhile, so that no CPU finds an old page where
//! there is a new one. No page table is freed: an unmap beside them, or the end of the space, does that as it always
//! does, even if the grace period is not over.

use core::ops::Range;

use crate::error::Error;
use crate::gather::{HeldFrames, SWEEP_FRAMES};
use crate::memory::Memory;
use crate::pmap::user_range;
use crate::region::{Backing, Protection, Region};
use crate::sweep::Change;
use crate::vm::Vm;
use tlbkit::{Cpu, GracePeriods, Hardware, PAGE_BYTES, Reason, Retired};

/// Pages of one space that were unmapped and retired. One that is dropped leaks its frames, and its addresses.
#[must_use = "unless it is finished, frames and addresses leak"]
pub struct Retirement {
    retired: Retired<HeldFrames<SWEEP_FRAMES>>,
    range: Range<u64>,
}

impl<S> Vm<'_, S> {
    /// Unmaps as [`unmap`](Self::unmap) does, but waits for nobody: until the grace period is over other CPUs may use
    /// the pages as before, and nothing is mapped there. Nothing is retired where no other CPU can use the pages, so
    /// that the flush here is all; nor, and the flush is waited for, where a region is shared, since a store to a page
    /// of it must not be lost; where another sweep is under way; and where addresses are withheld already, or there is
    /// no room to withhold more. Frames that do not fit into one gather, and a large page that is cut, are flushed and
    /// waited for as well.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap).
    pub fn unmap_and_retire<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        periods: &GracePeriods<'_>,
        va: u64,
        pages: u64,
    ) -> Result<Option<Retirement>, Error> {
        let guard = self.lock.write(cpu.hardware());
        let range = user_range(va, pages)?;
        let is_private = self.regions_in(&range).all(|region| !region.backing.is_shared());
        // Named apart, so that neighbours do not become one: each is given back as it was withheld.
        let file = (range.start / PAGE_BYTES) as u32;
        let withheld =
            Region { first: range.start, file, ..Region::new(pages, Backing::AnonPrivate, Protection::None) };
        if pages == 0
            || !is_private
            || !self.withheld.is_unused(&range)
            || self.withheld.insert(&guard, withheld).is_err()
        {
            drop(guard);
            return self.unmap(cpu, mem, va, pages).map(|()| None);
        }
        let mut gather = self.pmap.begin_sweep(cpu, mem);
        let result = self.regions.check_room_to_carve().map_err(Error::from);
        let result = result.and_then(|()| self.pmap.split_at_ends(cpu, mem, &range));
        let change = Change::Remove(Reason::RemovePte);
        let result = result.and_then(|()| self.pmap.sweep_into(cpu, mem, range.clone(), change, &mut gather));
        if result.is_ok() {
            self.regions.carve(&guard, &range, |_| None);
        }
        self.pmap.set_total_pages(self.regions.iter().map(|region| region.pages).sum());
        let retired = if result.is_ok() { self.pmap.retire_sweep(gather, periods) } else { Err(gather) };
        match retired.map(Retired::try_now) {
            Ok(Err(retired)) => return Ok(Some(Retirement { retired, range })),
            Ok(Ok(flushed)) => {
                self.withheld.carve(&guard, &range, |_| None);
                drop(guard);
                flushed.into_frames().put_all(mem);
            }
            Err(gather) => {
                self.pmap.end_sweep(gather, &range);
                self.withheld.carve(&guard, &range, |_| None);
            }
        }
        result.map(|()| None)
    }
}

impl Retirement {
    /// Base pages that it withholds.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        (self.range.end - self.range.start) / PAGE_BYTES
    }

    /// True if [`finish`](Self::finish) would interrupt nobody: it waits for the lock of the regions at most.
    pub fn is_over<H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, periods: &GracePeriods<'_>) -> bool {
        self.retired.is_over(cpu, periods)
    }

    /// Puts the frames, and gives the addresses back to `vm`, the space that they are of, which has not ended. If the
    /// grace period is not over, all CPUs are interrupted and waited for.
    pub fn finish<S, H: Hardware<Set = S>>(
        self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        periods: &GracePeriods<'_>,
        vm: &Vm<'_, S>,
    ) {
        self.retired.flush(cpu, periods).into_frames().put_all(mem);
        let guard = vm.lock.write(cpu.hardware());
        vm.withheld.carve(&guard, &self.range, |_| None);
    }
}
