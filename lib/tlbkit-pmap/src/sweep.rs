//! Operations over a range: unhook or narrow every leaf in it, flush once, and miss no flush of another that overlaps.

use crate::error::Error;
use crate::gather::{SWEEP, Unhook};
use crate::memory::{Frame, Memory};
use crate::pmap::{Pmap, check_user_range, with_protection};
use crate::pte;
use crate::region::Protection;
use crate::table::{self, Found, Slot, USER_END};
use core::ops::Range;
use tlbkit::sync::Ordering;
use tlbkit::{Cpu, Hardware, Isolation, Reason, Scope, Stride, TableFree};
use tlbkit_arch::Pte;

/// What a sweep does to each leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Remove(Reason),
    Protect(Protection),
}

pub(crate) type Sweep<'a, H, M> = Unhook<'a, H, M, SWEEP>;

impl<S> Pmap<S> {
    /// Removes what is mapped in `range` and puts its frames back after the flush.
    ///
    /// # Errors
    /// [`Error::BadRange`] if `range` is not whole pages of the user half: nothing is changed then.
    /// [`Error::OutOfMemory`] or [`Error::SharedLargePage`] if a large page that is only partly in `range` could not be
    /// split: what comes before it has been changed then.
    pub fn remove<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        range: Range<u64>,
    ) -> Result<(), Error> {
        self.sweep(cpu, mem, range, Change::Remove(Reason::RemovePte))
    }

    /// Narrows or widens what is mapped in `range`. Copy-on-write entries stay read-only.
    ///
    /// # Errors
    /// [`Error::BadRange`] if `range` is not whole pages of the user half: nothing is changed then.
    /// [`Error::OutOfMemory`] or [`Error::SharedLargePage`] if a large page that is only partly in `range` could not be
    /// split: what comes before it has been changed then.
    pub fn protect<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        range: Range<u64>,
        protection: Protection,
    ) -> Result<(), Error> {
        self.sweep(cpu, mem, range, Change::Protect(protection))
    }

    fn sweep<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        range: Range<u64>,
        change: Change,
    ) -> Result<(), Error> {
        check_user_range(&range)?;
        let mut unhook = self.begin(cpu, mem);
        let result = self.sweep_into(cpu, mem, range.clone(), change, &mut unhook);
        self.end(unhook, &range);
        result
    }

    /// Starts an operation that changes leaves and flushes later.
    pub(crate) fn begin<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
    ) -> Sweep<'a, H, M> {
        // Relaxed: read by others only after they have seen a change of ours, through a lock that we take next.
        self.sweeping.fetch_add(1, Ordering::Relaxed);
        self.unhook(cpu, mem)
    }

    /// Flushes. An operation that overlaps another may have found an entry gone whose flush is still to come; it must
    /// not return before that, so it asks for its whole range itself, or for everything (C-28).
    pub(crate) fn end<H: Hardware<Set = S>, M: Memory>(&self, mut unhook: Sweep<'_, H, M>, range: &Range<u64>) {
        // Acquire: partner is the Release below; if the other is gone from the count, so is its flush from the future.
        if self.sweeping.load(Ordering::Acquire) > 1 {
            unhook.overlapped(range);
        }
        unhook.finish();
        // Release: partner is the Acquire above, on another CPU.
        self.sweeping.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn sweep_into<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        range: Range<u64>,
        change: Change,
        unhook: &mut Sweep<'a, H, M>,
    ) -> Result<(), Error> {
        self.for_spans(cpu.hardware(), mem, range, |span| self.sweep_leaves(cpu, mem, span, change, unhook))
    }

    /// Calls `visit` for each part of `range` that may hold leaves, under its lock.
    pub(crate) fn for_spans(
        &self,
        hw: &impl Hardware,
        mem: &impl Memory,
        range: Range<u64>,
        mut visit: impl FnMut(Range<u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut va = range.start;
        while va < range.end {
            if let Found::Hole(level @ 3..) = table::find(mem, self.root(), va) {
                va = table::next(va, level);
                continue;
            }
            let end = table::next(va, 2).min(range.end);
            let _guard = self.lock(hw, va);
            visit(va..end)?;
            va = end;
        }
        Ok(())
    }

    /// Sweeps the leaves in `span`, whose lock is held, or in any range if no other CPU uses the tables.
    pub(crate) fn sweep_leaves<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        mut span: Range<u64>,
        change: Change,
        unhook: &mut Sweep<'a, H, M>,
    ) -> Result<(), Error> {
        let mut table_end = table::next(span.start, 2);
        while let Some((va, slot)) = table::first_leaf(mem, self.root(), span.clone()) {
            span.start = va;
            if va >= table_end {
                unhook.leave_table();
                table_end = table::next(va, 2);
            }
            if slot.level == 2 && (!va.is_multiple_of(slot.bytes()) || span.end - va < slot.bytes()) {
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
            span.start += slot.bytes();
        }
        unhook.leave_table();
        Ok(())
    }

    /// Splits the large pages that only partly lie in `range`, so that what follows needs no memory.
    pub(crate) fn cut_out<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        range: &Range<u64>,
    ) -> Result<(), Error> {
        for va in [range.start, range.end] {
            let _guard = self.lock(cpu.hardware(), va);
            if let Found::Leaf(slot) = table::find(mem, self.root(), va)
                && !va.is_multiple_of(slot.bytes())
            {
                self.split(cpu, mem, va, slot)?;
            }
        }
        Ok(())
    }

    /// Puts a table of base pages where `va` lies, unless a large page begins there: no fault maps a large page across
    /// `va` from then on, so a sweep that ends or begins there needs no memory.
    pub(crate) fn keep_small<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
    ) -> Result<(), Error> {
        if !va.is_multiple_of(Stride::Page2M.bytes()) {
            let _guard = self.lock(cpu.hardware(), va);
            self.small_slot(cpu, mem, va, 1)?;
        }
        Ok(())
    }

    /// Removes everything from the user half, and its tables if the policy or the lack of memory wants them at once. No
    /// other CPU may use the tables meanwhile.
    pub fn remove_all<'a, H: Hardware<Set = S>, M: Memory>(&'a self, cpu: &Cpu<'a, '_, H>, mem: &'a M) {
        let mut unhook = self.begin(cpu, mem);
        unhook.everything(Reason::RemoveAll);
        let swept = self.sweep_leaves(cpu, mem, 0..USER_END, Change::Remove(Reason::RemoveAll), &mut unhook);
        debug_assert!(swept.is_ok(), "a range of everything cuts no large page");
        let policy = cpu.tlb().policy();
        if policy.history.table_free() == TableFree::AtOnce || mem.is_low() {
            if policy.history.sends_at_once() {
                // Each request of its own: the tables are a second one.
                unhook.update();
                unhook.everything(Reason::FreeTable);
            }
            table::take_tables(mem, self.root(), 0..USER_END, &|_| true, &mut |va, frame| unhook.table(va, frame));
        }
        self.end(unhook, &(0..USER_END));
    }

    /// Takes out and frees the tables in `range` under which `is_unused` says nothing is mapped any more. No other CPU
    /// may use the tables meanwhile.
    pub(crate) fn free_tables<H: Hardware<Set = S>, M: Memory, const N: usize>(
        &self,
        mem: &M,
        range: core::ops::Range<u64>,
        is_unused: &impl Fn(core::ops::Range<u64>) -> bool,
        unhook: &mut Unhook<'_, H, M, N>,
    ) {
        table::take_tables(mem, self.root(), range, is_unused, &mut |va, frame| unhook.table(va, frame));
    }

    /// Frees the tables of an empty space that no CPU has loaded, lazily or not: there is nothing left to flush.
    pub(crate) fn free_root(&self, mem: &impl Memory) {
        let root = self.root();
        table::take_tables(mem, root, 0..USER_END, &|_| true, &mut |_, frame| mem.put(frame));
        let shift = if root.isolation == Isolation::On { 13 } else { 12 };
        mem.put(Frame { at: root.at, shift });
    }
}

/// Takes a leaf out and hands its frame to the gather.
fn take_leaf<H: Hardware, M: Memory, const N: usize>(
    mem: &M,
    va: u64,
    slot: Slot,
    reason: Reason,
    unhook: &mut Unhook<'_, H, M, N>,
) {
    let old = Pte(mem.swap(slot.at, 0));
    if old.has(Pte::DIRTY | pte::SHARED) {
        unhook.meet_shared_dirty();
    }
    if let Some(frame) = pte::into_frame(old) {
        unhook.unmap(va, slot.stride(), reason, frame);
    } else if old.needs_flush(Pte::EMPTY) {
        unhook.page(va, slot.stride(), Scope::Local, reason);
    }
}

/// Changes a leaf without losing an A or D bit that a CPU sets meanwhile, and asks for the flush that it needs.
pub(crate) fn change_leaf<H: Hardware, M: Memory, const N: usize>(
    mem: &M,
    va: u64,
    slot: Slot,
    reason: Reason,
    unhook: &mut Unhook<'_, H, M, N>,
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
