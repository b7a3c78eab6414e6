//! The page tables of one space: enter, extract, replace, split.
//!
//! A lock covers each last-level table and the entry that points to it, so CPUs that work on different tables do not
//! contend. The upper levels are walked without a lock: entries are added to them under a separate lock, and are
//! removed only while no other CPU uses the tables.
//!
//! `Pmap` knows nothing about regions. [`Vm`](crate::Vm) decides what is mapped where, and calls it.

use crate::error::Error;
use crate::gather::MmuGather;
use crate::lock::{SpinGuard, TableLocks};
use crate::memory::{Frame, Memory, Purpose};
use crate::pte;
use crate::region::Protection;
use crate::table::{self, Entry, Found, Root, USER_END};
use core::ops::Range;
use tlbkit::sync::{AtomicU32, AtomicU64, Ordering};
use tlbkit::{AddressSpace, Cpu, Hardware, PAGE_BYTES, PhysAddr, Reason, Scope, SpaceToken, Tlb};
use tlbkit_arch::Pte;

/// The page tables of one space and the [`AddressSpace`] by which the protocol knows them. All functions but
/// [`remove_all`](Self::remove_all) may run on several CPUs at once.
pub struct Pmap<S = &'static [AtomicU64]> {
    space: AddressSpace<S>,
    root: Root,
    pub(crate) locks: TableLocks,
    /// Operations that are between their first change and their flush (C-28): Linux' `tlb_flush_pending`.
    pub(crate) sweeping: AtomicU32,
    /// Base pages of all regions, mapped or not: Linux' `total_vm`. Guarded by the lock of the regions; it is an atomic
    /// of `core`, which loom does not check, only to be shared.
    total_pages: core::sync::atomic::AtomicU64,
}

// Every operation writes `sweeping`, so it must not share a cache line with what every flush and every switch reads.
#[cfg(not(loom))]
const _: () = {
    let space_end = core::mem::offset_of!(Pmap, space) + size_of::<AddressSpace>();
    assert!(align_of::<Pmap>() == 64 && core::mem::offset_of!(Pmap, sweeping) / 64 > (space_end - 1) / 64);
};

/// Where a page is mapped.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// At this level, to which the tables are walked.
    Level(u32),
    /// At this entry of the last level, whose table stays there.
    Leaf(PhysAddr),
}

impl<S> Pmap<S> {
    /// Empty tables that share the kernel half of `kernel_root`. `set` is zeroed, as [`AddressSpace::new`] requires.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(
        tlb: &Tlb<'_>,
        mem: &impl Memory,
        kernel_root: PhysAddr,
        token: SpaceToken,
        set: S,
    ) -> Result<Self, Error> {
        let isolation = tlb.policy().isolation;
        let at = table::new_root(mem, kernel_root, isolation).ok_or(Error::OutOfMemory)?.at;
        let space = AddressSpace::new(tlb.fresh_id(), token, at, set);
        let total_pages = core::sync::atomic::AtomicU64::new(0);
        Ok(Self {
            space,
            root: Root { at, isolation },
            locks: TableLocks::new(),
            sweeping: AtomicU32::new(0),
            total_pages,
        })
    }

    /// The space to pass to `Cpu::switch_to`.
    #[must_use]
    pub const fn space(&self) -> &AddressSpace<S> {
        &self.space
    }

    pub(crate) fn total_pages(&self) -> u64 {
        self.total_pages.load(Ordering::Relaxed)
    }

    pub(crate) fn set_total_pages(&self, pages: u64) {
        self.total_pages.store(pages, Ordering::Relaxed);
    }

    pub(crate) const fn root(&self) -> Root {
        self.root
    }

    /// An empty gather for changes of these tables.
    pub(crate) fn gather<'a, H: Hardware<Set = S>, M: Memory, const N: usize>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
    ) -> MmuGather<'a, H, M, N> {
        MmuGather::of_space(cpu, mem, self)
    }

    /// Locks the last-level table of `va` and the entry that points to it.
    pub(crate) fn lock(&self, hw: &impl Hardware, va: u64) -> SpinGuard<'_> {
        self.locks.lock_table(hw, va)
    }

    /// The entry of `va` at `level`, and how many page-table pages were allocated on the way to it; `None` if memory is
    /// exhausted. The caller holds the lock of `va`.
    fn create(&self, hw: &impl Hardware, mem: &impl Memory, va: u64, level: u32) -> Option<(Entry, u32)> {
        let mut made = 0;
        if let Found::Hole(3..) = table::find(mem, self.root, va) {
            let _guard = self.locks.lock_upper(hw);
            made = table::create(mem, self.root, va, 2)?.1;
        }
        let (entry, more) = table::create(mem, self.root, va, level)?;
        Some((entry, made + more))
    }

    /// Writes `new` into an empty entry and returns how many page-table pages that took; `None` if the entry is no
    /// longer empty. The frame of `new` is put if it was not used. If the entry is empty `before` is called, under
    /// the lock.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn install(
        &self,
        hw: &impl Hardware,
        mem: &impl Memory,
        va: u64,
        place: Place,
        new: Pte,
        before: impl FnOnce(),
    ) -> Result<Option<u32>, Error> {
        let guard = self.lock(hw, va);
        let place = match place {
            Place::Level(level) => self.create(hw, mem, va, level),
            Place::Leaf(at) => Some((table::leaf(mem, at), 0)),
        };
        if let Some((entry, made)) = place
            && entry.pte.is_empty()
        {
            before();
            mem.store(entry.at, new.0);
            return Ok(Some(made));
        }
        drop(guard);
        pte::into_frame(new).into_iter().for_each(|frame| mem.put(frame));
        place.map(|_| None).ok_or(Error::OutOfMemory)
    }

    /// The base frame and the entry that map `va`, read under the page-table lock. The lock is dropped on return, and
    /// the caller gets no reference, so the frame may be freed at any time. `None` beyond the user half, since the
    /// kernel half is shared.
    pub fn extract<H: Hardware<Set = S>>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        va: u64,
    ) -> Option<(PhysAddr, Pte)> {
        if va >= USER_END {
            return None;
        }
        let _guard = self.lock(cpu.hardware(), va);
        match table::find(mem, self.root, va) {
            Found::Leaf(entry) if entry.pte.has(Pte::PRESENT) => {
                let offset = va % entry.bytes() / PAGE_BYTES * PAGE_BYTES;
                Some((PhysAddr(entry.pte.frame().0 + offset), entry.pte))
            }
            _ => None,
        }
    }

    /// Maps `frame` at `va` with the bits `bits`, replacing whatever is mapped there, and returns how many page-table
    /// pages that took.
    ///
    /// If a present entry is replaced, no CPU can use the new frame before the old translation is gone from every CPU.
    ///
    /// # Errors
    /// [`Error::BadRange`] beyond the user half, since the kernel half is shared; [`Error::OutOfMemory`];
    /// [`Error::SharedLargePage`] if such a page would have to be split. `frame` has been put then.
    ///
    /// # Panics
    /// If `frame` is large and the entry points to a page table: remove what it maps first. If it is large and CPUs
    /// have [directories of their own](crate::Vm::give_directories).
    pub fn enter<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        frame: Frame,
        bits: u64,
    ) -> Result<u32, Error> {
        let bytes = 1 << frame.shift;
        assert!(
            bytes == PAGE_BYTES || !self.has_directories(cpu.hardware()),
            "a large page where each CPU has a directory"
        );
        let _guard = self.lock(cpu.hardware(), va);
        let level = if frame.shift == 21 { 2 } else { 1 };
        let place = user_range(va & !(bytes - 1), bytes / PAGE_BYTES);
        let (entry, made) = match place.and_then(|_| self.small_entry(cpu, mem, va, level)) {
            Ok(found) => found,
            Err(error) => {
                mem.put(frame);
                return Err(error);
            }
        };
        let is_table = entry.level == 2 && entry.pte.has(Pte::PRESENT) && !entry.pte.has(Pte::LARGE);
        assert!(!is_table, "a page table lies at {va:#x}");
        let size = if level == 2 { Pte::LARGE } else { 0 };
        if level == 2 {
            self.locks.directories.note_large(cpu.hardware());
        }
        self.replace(cpu, mem, va, entry, Pte::new(frame.at, bits | size), Reason::Enter);
        Ok(made)
    }

    /// The entry of `va` at `level`, after splitting a large page that is in the way. The caller holds the lock of
    /// `va`.
    pub(crate) fn small_entry<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        level: u32,
    ) -> Result<(Entry, u32), Error> {
        let (entry, made) = self.create(cpu.hardware(), mem, va, level).ok_or(Error::OutOfMemory)?;
        if entry.level == level {
            return Ok((entry, made));
        }
        self.split(cpu, mem, va, entry)?;
        let (entry, _) = self.create(cpu.hardware(), mem, va, level).ok_or(Error::OutOfMemory)?;
        Ok((entry, made + 1))
    }

    /// Replaces a leaf by `new`: clear, flush if the change needs one, then write (break-before-make). The caller holds
    /// the lock throughout, so a CPU that faults meanwhile waits for it, with interrupts on, and still answers the
    /// flush.
    pub(crate) fn replace<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        entry: Entry,
        new: Pte,
        reason: Reason,
    ) {
        let old = Pte(mem.swap(entry.at, 0));
        let mut gather = self.gather::<H, M, 2>(cpu, mem);
        let va = va & !(entry.bytes() - 1);
        let is_gone = self.is_gone(cpu, old);
        match pte::into_frame(old) {
            // The same frame with at least the same permissions: only the surplus reference is dropped.
            Some(frame) if frame.at == new.frame() && !old.needs_flush(new) => mem.put(frame),
            Some(frame) if is_gone => mem.put(frame),
            Some(frame) => gather.unmap(va, entry, reason, frame),
            None if old.needs_flush(new) && !is_gone => gather.page(va, entry, Scope::NonGlobal, reason),
            None => {}
        }
        gather.finish();
        mem.store(entry.at, new.0);
    }

    /// Splits the large page that maps `va` into base pages. The caller holds the lock. The large translation is
    /// flushed everywhere before the first small one can be used, so no CPU ever holds translations of both sizes for
    /// an address.
    ///
    /// If the frame has other holders, which keep using it as a whole, the pieces come from a private copy. The copy is
    /// made after the flush: until then a CPU may store through its stale translation, and that store must not be lost.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. [`Error::SharedLargePage`] if the page belongs to a shared mapping and has other
    /// holders, since a copy would no longer be shared. Nothing has been changed then.
    pub(crate) fn split<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        entry: Entry,
    ) -> Result<(), Error> {
        let shared = mem.references(entry.pte.frame()) > 1;
        if shared && entry.pte.has(pte::SHARED) {
            return Err(Error::SharedLargePage { va });
        }
        let copy = if shared { Some(mem.alloc(21, Purpose::Copy).ok_or(Error::OutOfMemory)?) } else { None };
        let Some(table) = mem.alloc(12, Purpose::Table) else {
            copy.into_iter().for_each(|frame| mem.put(frame));
            return Err(Error::OutOfMemory);
        };
        let mut gather = self.gather::<H, M, 1>(cpu, mem);
        let old = Pte(mem.swap(entry.at, 0));
        if !self.is_gone(cpu, old) {
            gather.page(va & !(entry.bytes() - 1), entry, Scope::NonGlobal, Reason::Enter);
        }
        gather.finish();
        let pieces = match copy {
            Some(copy) => {
                mem.copy(old.frame(), copy.at, 21);
                mem.put(Frame { at: old.frame(), shift: 21 });
                copy.at
            }
            None => old.frame(),
        };
        mem.split(pieces);
        for n in 0..512 {
            let at = PhysAddr(pieces.0 + n * PAGE_BYTES);
            mem.store(PhysAddr(table.at.0 + 8 * n), Pte::new(at, old.without(Pte::LARGE).bits()).0);
        }
        mem.store(entry.at, Pte::new(table.at, pte::TABLE).0);
        Ok(())
    }
}

/// `pte` with the permission bits that `protection` allows.
pub(crate) fn with_protection(pte: Pte, protection: Protection) -> Pte {
    match protection {
        Protection::None => pte.without(Pte::PRESENT | Pte::WRITE),
        Protection::Read => pte.with(Pte::PRESENT).without(Pte::WRITE),
        Protection::ReadWrite if pte.has(pte::COW) || pte.has(pte::ZERO) => pte.with(Pte::PRESENT),
        Protection::ReadWrite => pte.with(Pte::PRESENT | Pte::WRITE),
    }
}

/// The addresses of `pages` base pages from `va` on. Both numbers come from user space, so anything but whole pages of
/// the user half is refused.
pub(crate) fn user_range(va: u64, pages: u64) -> Result<Range<u64>, Error> {
    let end = pages.checked_mul(PAGE_BYTES).and_then(|bytes| va.checked_add(bytes));
    let end = end.filter(|end| *end <= USER_END && va.is_multiple_of(PAGE_BYTES));
    end.map(|end| va..end).ok_or(Error::BadRange { va, pages })
}

/// Refuses a range that is not whole pages of the user half, or ends before it begins.
pub(crate) fn check_user_range(range: &Range<u64>) -> Result<(), Error> {
    let (va, pages) = (range.start, range.end.saturating_sub(range.start) / PAGE_BYTES);
    if user_range(va, pages)? == *range { Ok(()) } else { Err(Error::BadRange { va, pages }) }
}
