//! An address space as a program sees it: regions, and the calls that change them.
//!
//! The regions' lock is held by readers for what only looks at or changes what is mapped inside regions, by a writer
//! for what changes the regions or takes page tables out. Most calls hold it from their beginning to their end. Two do
//! not keep others out while they flush, which takes longest:
//!
//! ```text
//! CPU 0 unmaps A                              CPU 1
//! as a writer: takes entries, A, tables out
//! as a reader: flushes                        faults in B, and maps its page; nobody maps anything where A was
//! puts frames and tables back
//!
//! CPU 0 gives pages of A back                 CPU 1
//! as a reader: takes entries out
//! without the lock: flushes                   unmaps A: finds entries gone and the sweep not over, so it flushes
//! puts frames back                            everything itself before it returns (C-28); then A may be mapped anew
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

/// Lowest address that is given out.
pub const USER_BASE: u64 = 1 << 22;

/// Regions and page tables of one process. Aligned, so that its fields share cache lines in the same way everywhere.
#[repr(align(64))]
pub struct Vm<'k, S = &'static [AtomicU64]> {
    pub(crate) pmap: Pmap<S>,
    pub(crate) regions: Regions,
    pub(crate) lock: RwLock,
    pub(crate) kernel: &'k KernelMap<'k>,
    stage: AtomicU32,
}

/// Stages of a space's life, in order.
const LIVE: u32 = 0;
const EMPTIED: u32 = 1;
const FREED: u32 = 2;

impl<'k, S> Vm<'k, S> {
    /// An empty space. `set` is zeroed, as [`AddressSpace::new`] asks.
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
        Ok(Self { pmap, regions: Regions::new(), lock: RwLock::new(), kernel, stage })
    }

    /// The same space, whose last-level tables share `locks` in place of [`TABLE_LOCKS`](crate::TABLE_LOCKS) ones: for
    /// a space with more threads than these, each at work in tables of its own. If there are none, nothing changes. The
    /// locks are this space's alone until its last call has returned; then they can be lent to another.
    ///
    /// # Panics
    /// If their number is no power of two.
    #[must_use]
    pub fn with_table_locks(mut self, locks: &'static [TableLock]) -> Self {
        assert!(locks.is_empty() || locks.len().is_power_of_two(), "{} locks: no power of two", locks.len());
        self.pmap.locks.lent = locks;
        self
    }

    /// What to hand to `Cpu::switch_to`.
    #[must_use]
    pub const fn space(&self) -> &AddressSpace<S> {
        self.pmap.space()
    }

    /// Maps `pages` base pages at the lowest addresses that are free.
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

    /// Maps `region` at the lowest addresses that are free and suit its stride; its `first` is not looked at.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_region<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>, region: Region) -> Result<u64, Error> {
        let _guard = self.lock.write(cpu.hardware());
        let bytes = region.pages.checked_mul(PAGE_BYTES).filter(|bytes| *bytes > 0);
        let gap = bytes.and_then(|bytes| self.regions.gap(USER_BASE, USER_END, bytes, region.stride.bytes()));
        let first = gap.ok_or(Error::NoRoom { pages: region.pages })?;
        self.regions.insert(Region { first, ..region })?;
        self.pmap.set_total_pages(self.pmap.total_pages() + region.pages);
        Ok(first)
    }

    /// Removes `pages` base pages from `va` on, and the page tables that only they used.
    ///
    /// # Errors
    /// [`Error::BadRange`]; [`Error::TooManyRegions`], [`Error::OutOfMemory`] or [`Error::SharedLargePage`] where a
    /// region or a large page must be cut. Nothing is removed then.
    pub fn unmap<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        pages: u64,
    ) -> Result<(), Error> {
        let guard = self.lock.write(cpu.hardware());
        let range = user_range(va, pages)?;
        self.regions.room_to_carve()?;
        self.pmap.cut_out(cpu, mem, &range)?;
        let mut unhook = self.pmap.begin(cpu, mem);
        let change = Change::Remove(Reason::RemovePte);
        let result = self.pmap.sweep_into(cpu, mem, range.clone(), change, &mut unhook);
        if result.is_ok() {
            self.regions.carve(&range, |_| None);
            self.pmap.free_tables(mem, range.clone(), &|span| self.regions.is_unused(&span), &mut unhook);
        }
        self.pmap.set_total_pages(self.regions.iter().map(|region| region.pages).sum());
        let _guard = guard.downgrade();
        self.pmap.end(unhook, &range);
        result
    }

    /// Changes what the program may do with `pages` base pages from `va` on.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap); nothing is changed.
    pub fn protect<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        pages: u64,
        protection: Protection,
    ) -> Result<(), Error> {
        let _guard = self.lock.write(cpu.hardware());
        let range = user_range(va, pages)?;
        self.regions.room_to_carve()?;
        self.pmap.cut_out(cpu, mem, &range)?;
        self.regions.carve(&range, |region| Some(Region { protection, ..region }));
        self.pmap.protect(cpu, mem, range, protection)
    }

    /// Gives the frames of `pages` base pages back; the next access finds the backing's content again. Pages of shared
    /// anonymous memory are their own backing and stay.
    ///
    /// # Errors
    /// [`Error::BadRange`]; [`Error::OutOfMemory`] or [`Error::SharedLargePage`] where a large page must be cut.
    /// Nothing is given back then.
    pub fn dontneed<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        pages: u64,
    ) -> Result<(), Error> {
        self.dontneed_with(cpu, mem, va, pages, || ())
    }

    /// The same for a kernel with locks of its own around the regions: `regions_may_change` is called once when the
    /// pages are out and the flush is still to come.
    ///
    /// # Errors
    /// As [`dontneed`](Self::dontneed). If the range is bad or a page cannot be cut, `regions_may_change` is not
    /// called.
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
        self.pmap.cut_out(cpu, mem, &range)?;
        // Faults go on meanwhile: none may map a large page that would have to be cut half-way through.
        for border in [range.start, range.end] {
            if self.regions.at(border).is_some_and(|region| region.stride == Stride::Page2M) {
                self.pmap.keep_small(cpu, mem, border)?;
            }
        }
        let mut unhook = self.pmap.begin(cpu, mem);
        let change = Change::Remove(Reason::RemovePte);
        let mut result = Ok(());
        for piece in self.pieces(&range).filter(|piece| piece.backing != Backing::AnonShared) {
            result = result.and(self.pmap.sweep_into(cpu, mem, piece.range(), change, &mut unhook));
        }
        unhook.leave_regions();
        drop(guard);
        regions_may_change();
        self.pmap.end(unhook, &range);
        result
    }

    /// The region at `va`, for a kernel with a lock of its own around the regions: this takes none, so what it finds is
    /// a mixture of two regions if somebody changes them meanwhile.
    #[must_use]
    pub fn region_at(&self, va: u64) -> Option<Region> {
        self.regions.at(va)
    }

    fn pieces<'r>(&'r self, range: &'r Range<u64>) -> impl Iterator<Item = Region> + 'r {
        self.regions.iter().filter_map(|region| region.cut(range))
    }

    /// The base frame and the entry that map `va` now, read under the locks. None beyond the user half.
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
    /// As [`Pmap::enter`]; the frame has then been put back.
    ///
    /// # Panics
    /// If `frame` is large and a page table lies in its place.
    pub fn enter<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        frame: Frame,
        bits: u64,
    ) -> Result<u32, Error> {
        let _guard = self.lock.read(cpu.hardware());
        self.pmap.enter(cpu, mem, va, frame, bits)
    }

    /// Empties the space that runs here, as exec does: it goes on under the same id.
    pub fn clear<'a, H: Hardware<Set = S>, M: Memory>(&'a self, cpu: &Cpu<'a, '_, H>, mem: &'a M) {
        let _guard = self.lock.write(cpu.hardware());
        self.forget_regions();
        self.pmap.remove_all(cpu, mem);
    }

    fn forget_regions(&self) {
        self.regions.clear();
        self.pmap.set_total_pages(0);
    }

    /// The last thread of the space, running it on this CPU, has ended: leaves it and empties it.
    ///
    /// Under [`Foreign::Window`] the CPU loads the kernel's tables first and moves the window to reach what it has just
    /// left. Otherwise the space stays loaded, as far as the policy's lazy mode lets it, while it is torn down.
    pub fn exit<'a, H: Hardware<Set = S>, M: Memory>(&'a self, cpu: &Cpu<'a, '_, H>, mem: &'a M) {
        use crate::foreign::Home;
        let _guard = self.lock.write(cpu.hardware());
        let regions = self.regions.len();
        self.forget_regions();
        cpu.hardware().with_irqs_off(|irqs| match cpu.tlb().policy().history.foreign() {
            Foreign::Window => cpu.load_kernel(irqs),
            Foreign::TemporarySwitch => {}
            Foreign::DirectMap => cpu.enter_lazy(irqs),
        });
        let reach = || self.kernel.foreign.reach(cpu, &self.pmap, Home::Nowhere);
        // A kernel with a window takes the regions out one by one, and opens it for each; all leaves go with the last.
        let windows = if cpu.tlb().policy().history.foreign() == Foreign::Window { regions } else { 1 };
        for _ in 1..windows {
            reach().leave(cpu, mem);
        }
        let reach = reach();
        self.pmap.remove_all(cpu, mem);
        reach.leave(cpu, mem);
        self.advance(LIVE, EMPTIED);
    }

    /// Ends a space after [`exit`](Self::exit). `Now`: its tables have been freed. `WhenUnreferenced`: a CPU still
    /// holds them lazily, and [`reclaim`](Self::reclaim) follows when the protocol says that the last one has let go.
    ///
    /// # Panics
    /// If it was not emptied, or ended before.
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
    /// If it was not emptied, or freed before.
    pub fn reclaim(&self, mem: &impl Memory) {
        self.free(mem);
    }

    fn free(&self, mem: &impl Memory) {
        self.advance(EMPTIED, FREED);
        self.pmap.free_root(mem);
    }

    fn advance(&self, from: u32, to: u32) {
        // Relaxed: who frees comes after who emptied already, by the kernel's own order or by the protocol's, which
        // says that the last reference is gone: `tests/loom/ends.rs`.
        let moved = self.stage.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        assert_eq!(moved, Ok(from), "a space is emptied once, then freed once");
    }
}
