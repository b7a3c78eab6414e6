//! The page tables of one space: enter, extract, replace, split.
//!
//! A lock covers each last-level table and the entry that leads to it, so CPUs that work in different ones do not meet.
//! The upper levels are read without a lock: their entries come under one of their own, and go only while nobody else
//! uses the tables.
//!
//! `Pmap` knows nothing of regions. [`Vm`](crate::Vm) decides what belongs where and calls it.

use crate::error::Error;
use crate::gather::Unhook;
use crate::lock::{SpinGuard, TableLocks};
use crate::memory::{Frame, Memory, Purpose};
use crate::pte;
use crate::region::Protection;
use crate::table::{self, Found, Root, Slot, USER_END};
use core::ops::Range;
use tlbkit::sync::{AtomicU32, AtomicU64, Ordering};
use tlbkit::{AddressSpace, Cpu, Hardware, PAGE_BYTES, PhysAddr, Reason, Scope, SpaceToken, Stride, Tlb};
use tlbkit_arch::Pte;

/// Page tables and the space that the protocol knows them by. All but [`remove_all`](Self::remove_all) may run on
/// several CPUs at once.
pub struct Pmap<S = &'static [AtomicU64]> {
    space: AddressSpace<S>,
    root: Root,
    pub(crate) locks: TableLocks,
    /// Operations between their first change and their flush (C-28): Linux's `tlb_flush_pending`.
    pub(crate) sweeping: AtomicU32,
    /// Base pages of all regions, mapped or not; guarded by the lock of the regions, so core's atomic stands for a
    /// word.
    total_pages: core::sync::atomic::AtomicU64,
}

// Operations write to that count, so it stands in another cache line than what each flush and each switch reads.
#[cfg(not(loom))]
const _: () = {
    let space_end = core::mem::offset_of!(Pmap, space) + size_of::<AddressSpace>();
    assert!(align_of::<Pmap>() == 64 && core::mem::offset_of!(Pmap, sweeping) / 64 > (space_end - 1) / 64);
};

impl<S> Pmap<S> {
    /// Empty tables that share the kernel half of `kernel_root`. `set` is zeroed, as [`AddressSpace::new`] asks.
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

    /// What to hand to `Cpu::switch_to`.
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

    /// Begins a change of these tables that takes mappings out.
    pub(crate) fn unhook<'a, H: Hardware<Set = S>, M: Memory, const N: usize>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
    ) -> Unhook<'a, H, M, N> {
        Unhook::of_space(cpu, mem, &self.space, self.root, self.total_pages())
    }

    /// The lock of the last-level table of `va` and of the entry that leads to it.
    pub(crate) fn lock(&self, hw: &impl Hardware, va: u64) -> SpinGuard<'_> {
        self.locks.span(hw, va)
    }

    /// The leaf entry of `va` at `level`, with the tables on the way to it, and how many of those are new; nothing if
    /// memory is exhausted. The lock of `va` is held.
    fn create(&self, hw: &impl Hardware, mem: &impl Memory, va: u64, level: u32) -> Option<(Slot, u32)> {
        let mut made = 0;
        if let Found::Hole(3..) = table::find(mem, self.root, va) {
            let _guard = self.locks.upper(hw);
            made = table::create(mem, self.root, va, 2)?.1;
        }
        let (slot, more) = table::create(mem, self.root, va, level)?;
        Some((slot, made + more))
    }

    /// Puts `new` where nothing is, and returns how many tables that took; nothing if something lies there by now. What
    /// `new` refers to is put back unless it was used.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn install(
        &self,
        hw: &impl Hardware,
        mem: &impl Memory,
        va: u64,
        level: u32,
        new: Pte,
    ) -> Result<Option<u32>, Error> {
        let guard = self.lock(hw, va);
        let place = self.create(hw, mem, va, level);
        if let Some((slot, made)) = place
            && slot.level == level
            && slot.pte.is_empty()
        {
            mem.store(slot.at, new.0);
            return Ok(Some(made));
        }
        drop(guard);
        pte::into_frame(new).into_iter().for_each(|frame| mem.put(frame));
        place.map(|_| None).ok_or(Error::OutOfMemory)
    }

    /// The base frame and the entry that map `va`, read under the lock: without it the frame may be gone on return.
    /// None beyond the user half, which is all that this space has of its own.
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
            Found::Leaf(slot) if slot.pte.has(Pte::PRESENT) => {
                let offset = va % slot.bytes() / PAGE_BYTES * PAGE_BYTES;
                Some((PhysAddr(slot.pte.frame().0 + offset), slot.pte))
            }
            _ => None,
        }
    }

    /// Maps `frame` at `va` with the bits `bits`, in place of whatever is there, and returns how many tables that took.
    ///
    /// Where something present is replaced, no CPU sees the new frame before every CPU has lost the old one.
    ///
    /// # Errors
    /// [`Error::BadRange`] beyond the user half, as the kernel's tables are shared; [`Error::OutOfMemory`];
    /// [`Error::SharedLargePage`] if that would have to be cut. The frame has then been put back.
    ///
    /// # Panics
    /// If `frame` is large and a page table lies in its place: remove that first.
    pub fn enter<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        frame: Frame,
        bits: u64,
    ) -> Result<u32, Error> {
        let bytes = 1 << frame.shift;
        let _guard = self.lock(cpu.hardware(), va);
        let level = if frame.shift == 21 { 2 } else { 1 };
        let place = user_range(va & !(bytes - 1), bytes / PAGE_BYTES);
        let (slot, made) = match place.and_then(|_| self.small_slot(cpu, mem, va, level)) {
            Ok(found) => found,
            Err(error) => {
                mem.put(frame);
                return Err(error);
            }
        };
        let is_table = slot.level == 2 && slot.pte.has(Pte::PRESENT) && !slot.pte.has(Pte::LARGE);
        assert!(!is_table, "a page table lies at {va:#x}");
        let size = if level == 2 { Pte::LARGE } else { 0 };
        self.replace(cpu, mem, va, slot, Pte::new(frame.at, bits | size), Reason::Enter);
        Ok(made)
    }

    /// The leaf entry of `va` at `level`; a large page in the way of a small one is split. The lock is held.
    pub(crate) fn small_slot<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        level: u32,
    ) -> Result<(Slot, u32), Error> {
        let (slot, made) = self.create(cpu.hardware(), mem, va, level).ok_or(Error::OutOfMemory)?;
        if slot.level == level {
            return Ok((slot, made));
        }
        self.split(cpu, mem, va, slot)?;
        let (slot, _) = self.create(cpu.hardware(), mem, va, level).ok_or(Error::OutOfMemory)?;
        Ok((slot, made + 1))
    }

    /// Writes `new` into a leaf: at once if that needs no flush, else by way of nothing, the flush, and then `new`.
    /// The lock is held all along: a CPU that faults meanwhile waits for it, and answers.
    pub(crate) fn replace<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        slot: Slot,
        new: Pte,
        reason: Reason,
    ) {
        let old = Pte(mem.swap(slot.at, 0));
        let mut unhook = self.unhook::<H, M, 2>(cpu, mem);
        let (va, stride) = (va & !(slot.bytes() - 1), slot.stride());
        match pte::into_frame(old) {
            // The same frame, with no less permission: only a reference goes.
            Some(frame) if frame.at == new.frame() && !old.needs_flush(new) => mem.put(frame),
            Some(frame) => unhook.unmap(va, stride, reason, frame),
            None if old.needs_flush(new) => unhook.page(va, stride, Scope::Local, reason),
            None => {}
        }
        unhook.finish();
        mem.store(slot.at, new.0);
    }

    /// Turns the large page that covers `va` into base pages. The lock is held. Its translation is gone everywhere
    /// before the first small one can be used, so a CPU never holds both sizes for one address.
    ///
    /// A frame with other holders is replaced by a private copy, since they use it as a whole. It is copied after the
    /// flush: until then a CPU may store through its translation, and the store must not be lost.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. [`Error::SharedLargePage`] if the page is shared on purpose and has other holders: a
    /// copy would part them. Nothing is changed then.
    pub(crate) fn split<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        slot: Slot,
    ) -> Result<(), Error> {
        let shared = mem.references(slot.pte.frame()) > 1;
        if shared && slot.pte.has(pte::SHARED) {
            return Err(Error::SharedLargePage { va });
        }
        let copy = if shared { Some(mem.alloc(21, Purpose::Copy).ok_or(Error::OutOfMemory)?) } else { None };
        let Some(table) = mem.alloc(12, Purpose::Table) else {
            copy.into_iter().for_each(|frame| mem.put(frame));
            return Err(Error::OutOfMemory);
        };
        let mut unhook = self.unhook::<H, M, 1>(cpu, mem);
        let old = Pte(mem.swap(slot.at, 0));
        unhook.page(va & !(slot.bytes() - 1), Stride::Page2M, Scope::Local, Reason::Enter);
        unhook.finish();
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
        mem.store(slot.at, Pte::new(table.at, pte::TABLE).0);
        Ok(())
    }
}

/// The bits of a leaf under `protection`.
pub(crate) fn with_protection(pte: Pte, protection: Protection) -> Pte {
    match protection {
        Protection::None => pte.without(Pte::PRESENT | Pte::WRITE),
        Protection::Read => pte.with(Pte::PRESENT).without(Pte::WRITE),
        Protection::ReadWrite if pte.has(pte::COW) || pte.has(pte::ZERO) => pte.with(Pte::PRESENT),
        Protection::ReadWrite => pte.with(Pte::PRESENT | Pte::WRITE),
    }
}

/// The addresses of `pages` base pages from `va` on. They are a program's words: nothing but whole pages of its own
/// half may be looked at, let alone taken out.
pub(crate) fn user_range(va: u64, pages: u64) -> Result<Range<u64>, Error> {
    let end = pages.checked_mul(PAGE_BYTES).and_then(|bytes| va.checked_add(bytes));
    let end = end.filter(|end| *end <= USER_END && va.is_multiple_of(PAGE_BYTES));
    end.map(|end| va..end).ok_or(Error::BadRange { va, pages })
}

/// Refuses what is not whole pages of the user half, or ends before it begins.
pub(crate) fn check_user_range(range: &Range<u64>) -> Result<(), Error> {
    let (va, pages) = (range.start, range.end.saturating_sub(range.start) / PAGE_BYTES);
    if user_range(va, pages)? == *range { Ok(()) } else { Err(Error::BadRange { va, pages }) }
}
