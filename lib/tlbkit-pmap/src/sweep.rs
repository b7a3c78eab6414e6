//! Operations over a range of leaves: unhook them or restrict their permissions, flush once, free. Exec and exit are
//! such operations over the whole user half, and also free page-table pages.
//!
//! Frames need one flush before they are freed. So do page-table pages, and theirs must reach CPUs in lazy TLB mode
//! too, unless they are freed only when the space is destroyed, when the protocol guarantees that no CPU has them
//! loaded (document 002).
//!
//! Two operations that overlap may each find entries gone that the other has unhooked and not flushed yet. Neither may
//! return before that flush (C-28): see `Pmap::end_sweep`.

use crate::error::Error;
use crate::gather::{HeldFrames, MmuGather, SWEEP_FRAMES};
use crate::memory::{Frame, Memory};
use crate::pmap::{Pmap, check_user_range, with_protection};
use crate::pte;
use crate::region::Protection;
use crate::table::{self, Entry, Found, USER_END};
use core::ops::Range;
use tlbkit::sync::Ordering;
use tlbkit::{Cpu, GracePeriods, Hardware, Reason, Retired, Scope, Stride, TableFree};
use tlbkit_arch::Pte;

/// What a sweep does to every leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Remove(Reason),
    Protect(Protection),
}

pub(crate) type SweepGather<'a, H, M> = MmuGather<'a, H, M, SWEEP_FRAMES>;

impl<S> Pmap<S> {
    /// Unmaps everything in `range` and puts the frames after the flush.
    ///
    /// # Errors
    /// [`Error::BadRange`] if `range` is not whole pages of the user half; nothing has been changed then.
    /// [`Error::OutOfMemory`] or [`Error::SharedLargePage`] if a large page that lies only partly in `range` could not
    /// be split; everything below that page has been changed then.
    pub fn remove<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        range: Range<u64>,
    ) -> Result<(), Error> {
        self.sweep(cpu, mem, range, Change::Remove(Reason::RemovePte))
    }

    /// Changes the permissions of everything in `range`. Copy-on-write entries stay read-only.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
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
        let mut gather = self.begin_sweep(cpu, mem);
        let result = self.sweep_into(cpu, mem, range.clone(), change, &mut gather);
        self.end_sweep(gather, &range);
        result
    }

    /// Begins an operation that changes leaves and flushes later.
    pub(crate) fn begin_sweep<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
    ) -> SweepGather<'a, H, M> {
        // Relaxed: other CPUs rely on it only after they have seen one of our changes, which they do under a page-table
        // lock that we take next.
        self.sweeping.fetch_add(1, Ordering::Relaxed);
        self.gather(cpu, mem)
    }

    /// Flushes. If another operation is under way, this one may have found entries gone whose flush is still pending.
    /// It must not return before that flush, so it flushes its whole range itself, or everything (C-28).
    pub(crate) fn end_sweep<H: Hardware<Set = S>, M: Memory>(
        &self,
        mut gather: SweepGather<'_, H, M>,
        range: &Range<u64>,
    ) {
        // Acquire: partner is the Release below. An operation that is no longer counted has completed its flush.
        if self.sweeping.load(Ordering::Acquire) > 1 {
            gather.flush_overlap(range);
        }
        gather.finish();
        // Release: partner is the Acquire above, on another CPU.
        self.sweeping.fetch_sub(1, Ordering::Release);
    }

    /// Ends an operation whose pages were given away: nobody is interrupted. The gather comes back if another operation
    /// is under way, which must not find entries gone whose flush nobody waits for.
    #[allow(clippy::result_large_err, reason = "the gather comes back in place, as nothing is allocated")]
    pub(crate) fn retire_sweep<'a, H: Hardware<Set = S>, M: Memory>(
        &self,
        gather: SweepGather<'a, H, M>,
        periods: &GracePeriods<'_>,
    ) -> Result<Retired<HeldFrames<SWEEP_FRAMES>>, SweepGather<'a, H, M>> {
        // Acquire: as in `end_sweep`.
        if self.sweeping.load(Ordering::Acquire) > 1 {
            return Err(gather);
        }
        let retired = gather.retire(periods);
        // Relaxed: no other call promises what is retired here; its own grace period orders that.
        self.sweeping.fetch_sub(1, Ordering::Relaxed);
        Ok(retired)
    }

    pub(crate) fn sweep_into<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        range: Range<u64>,
        change: Change,
        gather: &mut SweepGather<'a, H, M>,
    ) -> Result<(), Error> {
        let mut holes = range.end - range.start;
        self.for_each_table_span(cpu.hardware(), mem, range, |span| {
            if gather.has_directories
                && let Some(last) = table::last_table(mem, self.root(), span.start)
            {
                holes -= span.end - span.start;
                gather.look_below(last, span.end - span.start);
            }
            self.sweep_leaves(cpu, mem, span, change, gather)
        })?;
        if gather.has_directories && self.locks.directories.have_all_tables() {
            gather.look_at_holes(holes);
        }
        Ok(())
    }

    /// Calls `visit` under the page-table lock for each 2 MiB part of `range` that may hold leaves.
    pub(crate) fn for_each_table_span(
        &self,
        hw: &impl Hardware,
        mem: &impl Memory,
        range: Range<u64>,
        mut visit: impl FnMut(Range<u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut va = range.start;
        while va < range.end {
            if let Found::Hole(level @ 3..) = table::find(mem, self.root(), va) {
                va = table::next_span(va, level);
                continue;
            }
            let end = table::next_span(va, 2).min(range.end);
            let _guard = self.lock(hw, va);
            visit(va..end)?;
            va = end;
        }
        Ok(())
    }

    /// Sweeps the leaves in `span`. The caller holds its page-table lock, or no other CPU uses the tables.
    pub(crate) fn sweep_leaves<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        mut span: Range<u64>,
        change: Change,
        gather: &mut SweepGather<'a, H, M>,
    ) -> Result<(), Error> {
        let mut table_end = table::next_span(span.start, 2);
        while let Some((va, entry)) = table::first_leaf(mem, self.root(), span.clone()) {
            span.start = va;
            if va >= table_end {
                gather.before_table_unlock();
                table_end = table::next_span(va, 2);
            }
            // A page that begins before the span ends behind it too: the span is of one table, or the whole user half.
            if span.end - va < entry.bytes() {
                self.split(cpu, mem, va, entry)?;
                continue;
            }
            match change {
                Change::Remove(reason) => unmap_leaf(mem, va, entry, reason, gather),
                Change::Protect(protection) => {
                    let narrow = |pte: Pte| with_protection(pte, protection);
                    change_leaf(mem, va, entry, Reason::WriteProtect, gather, narrow);
                }
            }
            span.start += entry.bytes();
        }
        gather.before_table_unlock();
        Ok(())
    }

    /// Splits the large pages that lie only partly in `range`, so that the sweep that follows needs no memory.
    pub(crate) fn split_at_ends<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        range: &Range<u64>,
    ) -> Result<(), Error> {
        for va in [range.start, range.end] {
            let _guard = self.lock(cpu.hardware(), va);
            if let Found::Leaf(entry) = table::find(mem, self.root(), va)
                && !va.is_multiple_of(entry.bytes())
            {
                self.split(cpu, mem, va, entry)?;
            }
        }
        Ok(())
    }

    /// Allocates the last-level table of `va`, unless `va` is aligned to a large page. From then on no fault can map a
    /// large page across `va`, so a sweep that begins or ends there needs no memory.
    pub(crate) fn prevent_large_page_at<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
    ) -> Result<(), Error> {
        if !va.is_multiple_of(Stride::Page2M.bytes()) {
            let _guard = self.lock(cpu.hardware(), va);
            self.small_entry(cpu, mem, va, 1)?;
        }
        Ok(())
    }

    /// Unmaps everything in the user half. Page-table pages are freed too if the policy says so or memory is low. No
    /// other CPU may use the tables meanwhile.
    pub fn remove_all<'a, H: Hardware<Set = S>, M: Memory>(&'a self, cpu: &Cpu<'a, '_, H>, mem: &'a M) {
        let mut gather = self.begin_sweep(cpu, mem);
        gather.cover_user_half(Reason::RemoveAll);
        let swept = self.sweep_leaves(cpu, mem, 0..USER_END, Change::Remove(Reason::RemoveAll), &mut gather);
        debug_assert!(swept.is_ok(), "the whole user half splits no large page");
        let policy = cpu.tlb().policy();
        if policy.history.table_free() == TableFree::AtOnce || mem.is_low() {
            if policy.history.sends_at_once() {
                // Such a policy sends each request separately: the tables are a second one.
                gather.flush();
                gather.cover_user_half(Reason::FreeTable);
            }
            self.free_tables(mem, 0..USER_END, &|_| true, &mut gather);
        }
        self.end_sweep(gather, &(0..USER_END));
    }

    /// Frees the page-table pages in `range` for whose addresses `is_unused` returns true. No other CPU may use the
    /// tables meanwhile.
    pub(crate) fn free_tables<H: Hardware<Set = S>, M: Memory, const N: usize>(
        &self,
        mem: &M,
        range: core::ops::Range<u64>,
        is_unused: &impl Fn(core::ops::Range<u64>) -> bool,
        gather: &mut MmuGather<'_, H, M, N>,
    ) {
        // Tables that each CPU has hooked are worth keeping: to take one out costs each of them a fault.
        if gather.has_directories && !mem.is_low() {
            return;
        }
        if gather.has_directories {
            self.locks.directories.note_lost_tables();
        }
        table::unhook_tables(mem, self.root(), range, is_unused, &mut |va, frame| {
            if gather.has_directories {
                self.unhook(mem, va, frame.at);
            }
            gather.table(va, frame);
        });
    }

    /// Frees the page-table pages of an empty space that no CPU has loaded, not even lazily, so nothing has to be
    /// flushed.
    pub(crate) fn free_root(&self, mem: &impl Memory) {
        let root = self.root();
        table::unhook_tables(mem, root, 0..USER_END, &|_| true, &mut |_, frame| mem.put(frame));
        self.free_directories(mem);
        mem.put(Frame { at: root.at, shift: root.shift() });
    }
}

/// Unhooks a leaf and passes its frame to the gather.
fn unmap_leaf<H: Hardware, M: Memory, const N: usize>(
    mem: &M,
    va: u64,
    entry: Entry,
    reason: Reason,
    gather: &mut MmuGather<'_, H, M, N>,
) {
    let old = Pte(mem.swap(entry.at, 0));
    if gather.is_cached_nowhere(old) {
        return pte::into_frame(old).into_iter().for_each(|frame| mem.put(frame));
    }
    if old.has(Pte::DIRTY | pte::SHARED) {
        gather.will_unmap_shared_dirty();
    }
    if let Some(frame) = pte::into_frame(old) {
        gather.unmap(va, entry, reason, frame);
    } else if old.needs_flush(Pte::EMPTY) {
        gather.page(va, entry, Scope::NonGlobal, reason);
    }
}

/// Changes a leaf without losing an A or D bit that a CPU sets meanwhile, and records the flush that this needs.
pub(crate) fn change_leaf<H: Hardware, M: Memory, const N: usize>(
    mem: &M,
    va: u64,
    entry: Entry,
    reason: Reason,
    gather: &mut MmuGather<'_, H, M, N>,
    change: impl Fn(Pte) -> Pte,
) {
    let mut old = entry.pte;
    while let Err(found) = mem.compare_exchange(entry.at, old.0, change(old).0) {
        old = Pte(found);
    }
    if old.needs_flush(change(old)) && !gather.is_cached_nowhere(old) {
        gather.page(va, entry, Scope::NonGlobal, reason);
    }
}
