//! An address space as a program sees it, Linux' `mm_struct`: regions, and the system calls that change them.
//!
//! The regions' lock is Linux' `mmap_lock`. It is held for reading by calls that only look at or change what is mapped
//! inside regions, and for writing by calls that change the regions or unhook page tables. Most calls hold it
//! throughout. Two calls release it in part before the flush, because the flush takes longest:
//!
//! ```text
//! CPU 0: munmap(A)                            CPU 1
//! for writing: unhooks entries, tables and A
//! for reading: flushes                        faults in B and maps a page; nothing can be mapped where A was
//! frees frames and tables
//!
//! CPU 0: madvise(A, MADV_DONTNEED)            CPU 1
//! for reading: unhooks entries
//! unlocked: flushes                           munmap(A): finds entries gone while the sweep is pending, so it flushes
//! frees frames                                everything itself before it returns (C-28); then A may be mapped again
//! ```

use crate::error::Error;
use crate::kernel::KernelMap;
use crate::lock::{RwLock, TableLock};
use crate::memory::{Frame, Memory};
use crate::pmap::{Pmap, user_range};
use crate::region::{Backing, Protection, Region, Regions};
use crate::sweep::Change;
use crate::table::USER_END;
use core::ops::Range;
use tlbkit::sync::{AtomicU32, AtomicU64, Ordering};
use tlbkit::{AddressSpace, Cpu, Destroyed, Foreign, Hardware, PAGE_BYTES, PhysAddr, Reason, SpaceToken, Stride, Tlb};
use tlbkit_arch::Pte;

/// The lowest address that [`Vm::map`] returns.
pub const USER_BASE: u64 = 1 << 22;

/// The regions and page tables of one process. Aligned to a cache line, so that the layout of its fields over cache
/// lines does not depend on where it is placed.
#[repr(align(64))]
pub struct Vm<'k, S = &'static [AtomicU64]> {
    pub(crate) pmap: Pmap<S>,
    pub(crate) regions: Regions,
    /// Where nothing may be mapped yet, though nothing is mapped: see `retire.rs`.
    pub(crate) withheld: Regions,
    pub(crate) lock: RwLock,
    pub(crate) kernel: &'k KernelMap<'k>,
    stage: AtomicU32,
}

/// The stages of a space's life, in order.
const LIVE: u32 = 0;
const EMPTIED: u32 = 1;
const FREED: u32 = 2;

impl<'k, S> Vm<'k, S> {
    /// An empty space. `set` is zeroed, as [`AddressSpace::new`] requires.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(
        tlb: &Tlb<'k>,
        mem: &impl Memory,
        kernel: &'k KernelMap<'k>,
        token: SpaceToken,
        set: S,
    ) -> Result<Self, Error> {
        let pmap = Pmap::new(tlb, mem, kernel.root(), token, set)?;
        let stage = AtomicU32::new(LIVE);
        Ok(Self { pmap, regions: Regions::new(), withheld: Regions::new(), lock: RwLock::new(), kernel, stage })
    }

    /// The same space with `locks` as the locks of its last-level tables, instead of the
    /// [`TABLE_LOCKS`](crate::TABLE_LOCKS) that it has: for a space with more threads than that, each working on its
    /// own tables. An empty slice changes nothing. The locks must serve no other space until the last call for this one
    /// has returned.
    ///
    /// # Panics
    /// If the number of locks is not a power of two.
    #[must_use]
    pub fn with_table_locks(mut self, locks: &'static [TableLock]) -> Self {
        assert!(locks.is_empty() || locks.len().is_power_of_two(), "{} locks: no power of two", locks.len());
        self.pmap.locks.lent = locks;
        self
    }

    /// The space to pass to `Cpu::switch_to`.
    #[must_use]
    pub const fn space(&self) -> &AddressSpace<S> {
        self.pmap.space()
    }

    /// Maps `pages` base pages at the lowest free addresses, and returns the first one.
    ///
    /// # Errors
    /// [`Error::NoRoom`]; [`Error::TooManyRegions`].
    pub fn map<H: Hardware<Set = S>>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        pages: u64,
        backing: Backing,
        protection: Protection,
    ) -> Result<u64, Error> {
        self.map_region(cpu, Region::new(pages, backing, protection))
    }

    /// Maps `region` at the lowest free addresses from its `first` on that are aligned to its stride, and returns the
    /// first one. If there are none it begins below.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_region<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>, region: Region) -> Result<u64, Error> {
        let guard = self.lock.write(cpu.hardware());
        let bytes = region.pages.checked_mul(PAGE_BYTES).filter(|bytes| *bytes > 0);
        let first = bytes
            .and_then(|bytes| {
                self.find_gap(region.first, bytes, region.stride).or_else(|| self.find_gap(0, bytes, region.stride))
            })
            .ok_or(Error::NoRoom { pages: region.pages })?;
        self.regions.insert(&guard, Region { first, ..region })?;
        self.pmap.set_total_pages(self.pmap.total_pages() + region.pages);
        Ok(first)
    }

    /// The lowest address, `base` or above, from which `bytes` bytes are free, and not withheld either.
    fn find_gap(&self, base: u64, bytes: u64, stride: Stride) -> Option<u64> {
        let mut base = base.max(USER_BASE);
        loop {
            let first = self.regions.find_gap(base, USER_END, bytes, stride.bytes())?;
            let free = self.withheld.find_gap(first, USER_END, bytes, stride.bytes())?;
            if first == free {
                return Some(first);
            }
            base = free;
        }
    }

    /// Unmaps `pages` base pages from `va` on, and frees the page-table pages that only they used.
    ///
    /// # Errors
    /// [`Error::BadRange`]; [`Error::TooManyRegions`], [`Error::OutOfMemory`] or [`Error::SharedLargePage`] where a
    /// region or a large page must be split. Nothing has been unmapped then.
    pub fn unmap<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        pages: u64,
    ) -> Result<(), Error> {
        let guard = self.lock.write(cpu.hardware());
        let range = user_range(va, pages)?;
        self.regions.check_room_to_carve()?;
        self.pmap.split_at_ends(cpu, mem, &range)?;
        let mut gather = self.pmap.begin_sweep(cpu, mem);
        let change = Change::Remove(Reason::RemovePte);
        let result = self.pmap.sweep_into(cpu, mem, range.clone(), change, &mut gather);
        if result.is_ok() {
            self.regions.carve(&guard, &range, |_| None);
            self.pmap.free_tables(mem, range.clone(), &|span| self.regions.is_unused(&span), &mut gather);
        }
        self.pmap.set_total_pages(self.regions.iter().map(|region| region.pages).sum());
        let _guard = guard.downgrade();
        self.pmap.end_sweep(gather, &range);
        result
    }

    /// Changes the permissions of `pages` base pages from `va` on.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap). Nothing has been changed then.
    pub fn protect<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        pages: u64,
        protection: Protection,
    ) -> Result<(), Error> {
        let guard = self.lock.write(cpu.hardware());
        let range = user_range(va, pages)?;
        self.regions.check_room_to_carve()?;
        self.pmap.split_at_ends(cpu, mem, &range)?;
        self.regions.carve(&guard, &range, |region| Some(Region { protection, ..region }));
        self.pmap.protect(cpu, mem, range, protection)
    }

    /// Frees the frames of `pages` base pages, as `MADV_DONTNEED` does. The next access finds the content of the
    /// backing again. Pages of shared anonymous memory have no other backing, so they are left alone.
    ///
    /// # Errors
    /// [`Error::BadRange`]; [`Error::OutOfMemory`] or [`Error::SharedLargePage`] where a large page must be split.
    /// Nothing has been freed then.
    pub fn dontneed<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        pages: u64,
    ) -> Result<(), Error> {
        self.dontneed_with(cpu, mem, va, pages, || ())
    }

    /// The same for a kernel that has its own locks around the regions: `regions_may_change` is called once, after the
    /// pages have been unhooked and before the flush, and may drop them.
    ///
    /// # Errors
    /// As [`dontneed`](Self::dontneed). `regions_may_change` is not called if the range is bad or a large page cannot
    /// be split.
    pub fn dontneed_with<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        pages: u64,
        regions_may_change: impl FnOnce(),
    ) -> Result<(), Error> {
        let guard = self.lock.read(cpu.hardware());
        let range = user_range(va, pages)?;
        self.pmap.split_at_ends(cpu, mem, &range)?;
        // Faults are handled meanwhile. None of them may map a large page that the sweep would have to split half-way.
        for border in [range.start, range.end] {
            if self.regions.find(border).is_some_and(|region| region.stride == Stride::Page2M) {
                self.pmap.prevent_large_page_at(cpu, mem, border)?;
            }
        }
        let mut gather = self.pmap.begin_sweep(cpu, mem);
        let change = Change::Remove(Reason::RemovePte);
        let mut result = Ok(());
        for piece in self.regions_in(&range).filter(|piece| piece.backing != Backing::AnonShared) {
            result = result.and(self.pmap.sweep_into(cpu, mem, piece.range(), change, &mut gather));
        }
        gather.before_regions_unlock(&guard);
        drop(guard);
        regions_may_change();
        self.pmap.end_sweep(gather, &range);
        result
    }

    /// The region that contains `va`, for a kernel that has its own lock around the regions. This function takes no
    /// lock: if the regions change meanwhile, the result may be a mixture of two.
    #[must_use]
    pub fn region_at(&self, va: u64) -> Option<Region> {
        self.regions.find(va)
    }

    pub(crate) fn regions_in<'r>(&'r self, range: &'r Range<u64>) -> impl Iterator<Item = Region> + 'r {
        self.regions.iter().filter_map(|region| region.cut(range))
    }

    /// The base frame and the entry that map `va`, as [`Pmap::extract`] returns them.
    pub fn extract<H: Hardware<Set = S>>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        va: u64,
    ) -> Option<(PhysAddr, Pte)> {
        let _guard = self.lock.read(cpu.hardware());
        self.pmap.extract(cpu, mem, va)
    }

    /// Maps `frame` at `va`, as [`Pmap::enter`] does.
    ///
    /// # Errors
    /// As [`Pmap::enter`]; [`Error::Withheld`] where pages were retired whose addresses have not been given back.
    /// `frame` has been put then.
    ///
    /// # Panics
    /// As [`Pmap::enter`].
    pub fn enter<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        frame: Frame,
        bits: u64,
    ) -> Result<u32, Error> {
        let _guard = self.lock.read(cpu.hardware());
        let first = va & !((1 << frame.shift) - 1);
        if !self.withheld.is_unused(&(first..first.saturating_add(1 << frame.shift))) {
            mem.put(frame);
            return Err(Error::Withheld { va });
        }
        self.pmap.enter(cpu, mem, va, frame, bits)
    }

    /// Empties the space that runs on this CPU, as exec does. It goes on under the same id.
    pub fn clear<'a, H: Hardware<Set = S>, M: Memory>(&'a self, cpu: &Cpu<'a, '_, H>, mem: &'a M) {
        let guard = self.lock.write(cpu.hardware());
        self.regions.clear(&guard);
        self.pmap.set_total_pages(0);
        self.pmap.remove_all(cpu, mem);
    }

    /// Leaves the space on this CPU and empties it, as the exit of its last thread does.
    ///
    /// Under [`Foreign::Window`] the CPU loads the kernel's tables first, and then reaches the tables that it has just
    /// left through the window. Otherwise the space stays loaded during the teardown, as far as the policy's lazy mode
    /// allows.
    pub fn exit<'a, H: Hardware<Set = S>, M: Memory>(&'a self, cpu: &Cpu<'a, '_, H>, mem: &'a M) {
        use crate::foreign::Home;
        let _guard = self.lock.write(cpu.hardware());
        cpu.hardware().with_irqs_off(|irqs| match cpu.tlb().policy().history.foreign() {
            Foreign::Window => cpu.load_kernel(irqs),
            Foreign::TemporarySwitch => {}
            Foreign::DirectMap => cpu.enter_lazy(irqs),
        });
        let reach = || self.kernel.foreign.reach(cpu, &self.pmap, Home::Nowhere);
        // A kernel with a window unmaps region by region and opens the window for each. Here all leaves are unhooked
        // under the last one.
        let windows = if cpu.tlb().policy().history.foreign() == Foreign::Window { self.regions.len() } else { 1 };
        for _ in 1..windows {
            reach().leave(cpu, mem);
        }
        let reach = reach();
        self.pmap.remove_all(cpu, mem);
        reach.leave(cpu, mem);
        self.advance_stage(LIVE, EMPTIED);
    }

    /// Destroys the space after [`exit`](Self::exit). If the result is `Now`, its tables have been freed. If it is
    /// `WhenUnreferenced`, a CPU still has them loaded lazily: call [`reclaim`](Self::reclaim) once the protocol
    /// reports that the last lazy reference is gone.
    ///
    /// # Panics
    /// If the space was not emptied, or was destroyed before.
    pub fn destroy<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) -> Destroyed {
        let destroyed = cpu.destroy(self.space());
        if destroyed == Destroyed::Now {
            self.free(mem);
        }
        destroyed
    }

    /// Frees the tables of a destroyed space whose last lazy reference is gone.
    ///
    /// # Panics
    /// If the space was not emptied, or was freed before.
    pub fn reclaim(&self, mem: &impl Memory) {
        self.free(mem);
    }

    fn free(&self, mem: &impl Memory) {
        self.advance_stage(EMPTIED, FREED);
        self.pmap.free_root(mem);
    }

    fn advance_stage(&self, from: u32, to: u32) {
        // Relaxed: freeing is already ordered after emptying, either by the kernel or, when the last lazy reference is
        // dropped, by the protocol (`tests/loom/ends.rs`).
        let moved = self.stage.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        assert_eq!(moved, Ok(from), "a space is emptied once, then freed once");
    }
}
