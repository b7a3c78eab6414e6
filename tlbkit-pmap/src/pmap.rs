//! The page tables of one space, under one lock: enter, extract, remove, protect, split.
//!
//! `Pmap` knows nothing of regions. [`Vm`](crate::Vm) decides what belongs where and calls it.

use crate::error::Error;
use crate::held::{SWEEP, Unhook};
use crate::lock::{SpinGuard, SpinLock};
use crate::memory::{Frame, Memory, Purpose};
use crate::pte::Pte;
use crate::region::Protection;
use crate::table::{self, Found, Root, Slot};
use core::ops::Range;
use tlbkit::sync::{AtomicU32, AtomicU64, Ordering};
use tlbkit::{AddressSpace, Cpu, Hardware, PAGE_BYTES, PhysAddr, Reason, Scope, SpaceToken, Stride, Tlb};

/// Page tables and the space that the protocol knows them by.
pub struct Pmap<'k> {
    space: AddressSpace<'k>,
    root: Root,
    lock: SpinLock,
    /// Operations between their first change and their flush (C-28).
    sweeping: AtomicU32,
    /// Base pages of all regions, mapped or not; guarded by the lock of the regions, so core's atomic stands for a
    /// word.
    total_pages: core::sync::atomic::AtomicU64,
}

/// What a sweep does to each leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Remove(Reason),
    Protect(Protection),
}

pub(crate) type Sweep<'a, 'k, H, M> = Unhook<'a, 'k, H, M, SWEEP>;

impl<'k> Pmap<'k> {
    /// Empty tables that share the kernel half of `kernel_root`. `set` is zeroed, as [`AddressSpace::new`] asks.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(
        tlb: &Tlb<'k>,
        mem: &impl Memory,
        kernel_root: PhysAddr,
        token: SpaceToken,
        set: &'k [AtomicU64],
    ) -> Result<Self, Error> {
        let isolation = tlb.policy().isolation;
        let at = table::new_root(mem, kernel_root, isolation).ok_or(Error::OutOfMemory)?.at;
        let space = AddressSpace::new(tlb.fresh_id(), token, at, set);
        let total_pages = core::sync::atomic::AtomicU64::new(0);
        Ok(Self {
            space,
            root: Root { at, isolation },
            lock: SpinLock::new(),
            sweeping: AtomicU32::new(0),
            total_pages,
        })
    }

    /// What to hand to `Cpu::switch_to`.
    #[must_use]
    pub const fn space(&self) -> &AddressSpace<'k> {
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

    pub(crate) fn lock(&self, hw: &impl Hardware) -> SpinGuard<'_> {
        self.lock.lock(hw)
    }

    /// The base frame and the entry that map `va`, read under the lock: without it the frame may be gone on return.
    pub fn extract<H: Hardware>(&self, cpu: &Cpu<'_, 'k, H>, mem: &impl Memory, va: u64) -> Option<(PhysAddr, Pte)> {
        let _guard = self.lock(cpu.hardware());
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
    /// [`Error::OutOfMemory`]; the frame has then been put back.
    ///
    /// # Panics
    /// If `frame` is large and a page table lies in its place: remove that first.
    pub fn enter<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        va: u64,
        frame: Frame,
        bits: u64,
    ) -> Result<u32, Error> {
        let _guard = self.lock(cpu.hardware());
        let level = if frame.shift == 21 { 2 } else { 1 };
        let Ok((slot, made)) = self.small_slot(cpu, mem, va, level) else {
            mem.put(frame);
            return Err(Error::OutOfMemory);
        };
        let is_table = slot.level == 2 && slot.pte.has(Pte::PRESENT) && !slot.pte.has(Pte::LARGE);
        assert!(!is_table, "a page table lies at {va:#x}");
        let size = if level == 2 { Pte::LARGE } else { 0 };
        self.replace(cpu, mem, va, slot, Pte::new(frame.at, bits | size), Reason::Enter);
        Ok(made)
    }

    /// The leaf entry of `va` at `level`; a large page in the way of a small one is split.
    pub(crate) fn small_slot<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        va: u64,
        level: u32,
    ) -> Result<(Slot, u32), Error> {
        let (slot, made) = table::create(mem, self.root, va, level).ok_or(Error::OutOfMemory)?;
        if slot.level == level {
            return Ok((slot, made));
        }
        self.split(cpu, mem, va, slot)?;
        let (slot, _) = table::create(mem, self.root, va, level).ok_or(Error::OutOfMemory)?;
        Ok((slot, made + 1))
    }

    /// Writes `new` into a leaf: at once if that needs no flush, else by way of nothing, the flush, and then `new`.
    /// The lock is held all along: a CPU that faults meanwhile waits for it, and answers.
    pub(crate) fn replace<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        va: u64,
        slot: Slot,
        new: Pte,
        reason: Reason,
    ) {
        let old = Pte(mem.swap(slot.at, 0));
        let mut unhook = Unhook::<H, M, 1>::of_space(cpu, mem, self);
        if old.needs_flush(new) {
            unhook.page(va & !(slot.bytes() - 1), slot.stride(), Scope::Local, reason);
        }
        if let Some(frame) = old.into_frame() {
            unhook.hold(frame);
        }
        unhook.finish();
        mem.store(slot.at, new.0);
    }

    /// Removes what is mapped in `range` and puts its frames back after the flush.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a large page that is only partly in `range` could not be split.
    pub fn remove<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        range: Range<u64>,
    ) -> Result<(), Error> {
        self.sweep(cpu, mem, range, Change::Remove(Reason::RemovePte))
    }

    /// Narrows or widens what is mapped in `range`. Copy-on-write entries stay read-only.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a large page that is only partly in `range` could not be split.
    pub fn protect<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        range: Range<u64>,
        protection: Protection,
    ) -> Result<(), Error> {
        self.sweep(cpu, mem, range, Change::Protect(protection))
    }

    fn sweep<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        range: Range<u64>,
        change: Change,
    ) -> Result<(), Error> {
        let mut unhook = self.begin(cpu, mem);
        let result = self.sweep_into(cpu, mem, range.clone(), change, &mut unhook);
        self.end(unhook, &range);
        result
    }

    /// Starts an operation that changes leaves and flushes later.
    pub(crate) fn begin<'a, H: Hardware, M: Memory>(&'a self, cpu: &Cpu<'a, 'k, H>, mem: &'a M) -> Sweep<'a, 'k, H, M> {
        // Relaxed: read by others only after they have seen a change of ours, through the lock that we take next.
        self.sweeping.fetch_add(1, Ordering::Relaxed);
        Unhook::of_space(cpu, mem, self)
    }

    /// Flushes. An operation that overlaps another may have found an entry gone whose flush is still to come; it must
    /// not return before that, so it asks for its whole range itself (C-28).
    pub(crate) fn end<H: Hardware, M: Memory>(&self, mut unhook: Sweep<'_, 'k, H, M>, range: &Range<u64>) {
        // Acquire: partner is the Release below; if the other is gone from the count, so is its flush from the future.
        if self.sweeping.load(Ordering::Acquire) > 1 {
            unhook.range(range.start, (range.end - range.start) / PAGE_BYTES, Scope::Local, Reason::RemovePte);
        }
        unhook.finish();
        // Release: partner is the Acquire above, on another CPU.
        self.sweeping.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn sweep_into<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        range: Range<u64>,
        change: Change,
        unhook: &mut Sweep<'a, 'k, H, M>,
    ) -> Result<(), Error> {
        let _guard = self.lock(cpu.hardware());
        let mut va = range.start;
        while va < range.end {
            let slot = match table::find(mem, self.root, va) {
                Found::Hole(level) => {
                    va = table::next(va, level);
                    continue;
                }
                Found::Leaf(slot) => slot,
            };
            if slot.level == 2 && (!va.is_multiple_of(slot.bytes()) || range.end - va < slot.bytes()) {
                self.split(cpu, mem, va, slot)?;
                continue;
            }
            match change {
                Change::Remove(reason) => take_leaf(mem, va, slot, reason, unhook),
                Change::Protect(protection) => {
                    let narrow = |pte: Pte| with_protection(pte, protection);
                    change_leaf(mem, va, slot, Reason::WriteProtect, unhook, narrow);
                }
            }
            va += slot.bytes();
        }
        Ok(())
    }

    /// Splits the large pages that only partly lie in `range`, so that what follows needs no memory.
    pub(crate) fn cut_out<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        range: &Range<u64>,
    ) -> Result<(), Error> {
        let _guard = self.lock(cpu.hardware());
        for va in [range.start, range.end] {
            if let Found::Leaf(slot) = table::find(mem, self.root, va)
                && !va.is_multiple_of(slot.bytes())
            {
                self.split(cpu, mem, va, slot)?;
            }
        }
        Ok(())
    }

    /// Turns the large page that covers `va` into base pages. Its translation is gone everywhere before the first small
    /// one can be used: a CPU never holds both sizes for one address. The lock is held.
    fn split<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        va: u64,
        slot: Slot,
    ) -> Result<(), Error> {
        let shared = mem.references(slot.pte.frame()) > 1;
        let copy = if shared { Some(mem.alloc(21, Purpose::Data).ok_or(Error::OutOfMemory)?) } else { None };
        let Some(table) = mem.alloc(12, Purpose::Table) else {
            copy.into_iter().for_each(|frame| mem.put(frame));
            return Err(Error::OutOfMemory);
        };
        let mut unhook = Unhook::<H, M, 1>::of_space(cpu, mem, self);
        let old = Pte(mem.swap(slot.at, 0));
        unhook.page(va & !(slot.bytes() - 1), Stride::Page2M, Scope::Local, Reason::Enter);
        let pieces = match copy {
            // A relative maps the frame as a whole: ours becomes a private copy first.
            Some(copy) => {
                mem.copy(old.frame(), copy.at, 21);
                unhook.hold(Frame { at: old.frame(), shift: 21 });
                copy.at
            }
            None => old.frame(),
        };
        unhook.finish();
        mem.split(pieces);
        for n in 0..512 {
            let at = PhysAddr(pieces.0 + n * PAGE_BYTES);
            mem.store(PhysAddr(table.at.0 + 8 * n), Pte::new(at, old.without(Pte::LARGE).bits()).0);
        }
        mem.store(slot.at, Pte::new(table.at, Pte::TABLE).0);
        Ok(())
    }
}

/// Takes a leaf out and hands its frame to the gather.
pub(crate) fn take_leaf<H: Hardware, M: Memory, const N: usize>(
    mem: &M,
    va: u64,
    slot: Slot,
    reason: Reason,
    unhook: &mut Unhook<'_, '_, H, M, N>,
) {
    let old = Pte(mem.swap(slot.at, 0));
    if old.needs_flush(Pte::EMPTY) {
        unhook.page(va, slot.stride(), Scope::Local, reason);
    }
    if let Some(frame) = old.into_frame() {
        unhook.hold(frame);
    }
}

/// Changes a leaf without losing an A or D bit that a CPU sets meanwhile, and asks for the flush that it needs.
pub(crate) fn change_leaf<H: Hardware, M: Memory, const N: usize>(
    mem: &M,
    va: u64,
    slot: Slot,
    reason: Reason,
    unhook: &mut Unhook<'_, '_, H, M, N>,
    change: impl Fn(Pte) -> Pte,
) {
    let mut old = slot.pte;
    while let Err(found) = mem.compare_exchange(slot.at, old.0, change(old).0) {
        old = Pte(found);
    }
    if old.needs_flush(change(old)) {
        unhook.page(va, slot.stride(), Scope::Local, reason);
    }
}

/// The bits of a leaf under `protection`.
pub(crate) fn with_protection(pte: Pte, protection: Protection) -> Pte {
    match protection {
        Protection::None => pte.without(Pte::PRESENT | Pte::WRITE),
        Protection::Read => pte.with(Pte::PRESENT).without(Pte::WRITE),
        Protection::ReadWrite if pte.has(Pte::COW) || pte.has(Pte::ZERO) => pte.with(Pte::PRESENT),
        Protection::ReadWrite => pte.with(Pte::PRESENT | Pte::WRITE),
    }
}
