//! [`MmuGather`]: unhook, flush, free, in that order (INV-1, INV-9), as Linux' `mmu_gather` does it.
//!
//! It collects what one operation has unhooked from the page tables and the frames behind it. The frames are put only
//! after the flush.

use crate::accessed;
use crate::lock::ReadGuard;
use crate::memory::{Frame, Memory};
use crate::pmap::Pmap;
use crate::table::{self, Entry, Root};
use core::ops::Range;
use tlbkit::{
    Cpu, GracePeriods, Hardware, Nested, PAGE_BYTES, PhysAddr, Reach, Reason, Retired, Scope, SharedDirty, Stride,
    TlbGather, Translations, VirtAddr,
};
use tlbkit_arch::Pte;

/// Frames after which a sweep flushes and goes on: 512 pages and their page-table page, which is about what fits into a
/// 4 KiB stack frame. Few under loom, whose stacks are small.
pub(crate) const SWEEP_FRAMES: usize = if cfg!(loom) { 4 } else { 513 };

/// Up to `N` frames, each with its size packed into one word. The protocol only moves them in and out.
pub(crate) struct HeldFrames<const N: usize> {
    words: [u64; N],
    count: usize,
}

impl<const N: usize> HeldFrames<N> {
    pub(crate) const fn new() -> Self {
        Self { words: [0; N], count: 0 }
    }

    pub(crate) fn put_all(self, mem: &impl Memory) {
        for word in &self.words[..self.count] {
            mem.put(Frame { at: PhysAddr(word & !0xfff), shift: (word & 0xfff) as u8 });
        }
    }
}

impl<const N: usize> Extend<Frame> for HeldFrames<N> {
    fn extend<I: IntoIterator<Item = Frame>>(&mut self, frames: I) {
        for frame in frames {
            assert!(self.count < N, "a gather of {N} frames is full");
            self.words[self.count] = frame.at.0 | u64::from(frame.shift);
            self.count += 1;
        }
    }
}

/// The pending invalidations of one operation and the frames that must outlive them. Everything that this crate removes
/// from a page table passes through one of these, except through an [`Eviction`](crate::Eviction) or a
/// [`Withdrawal`](crate::Withdrawal), and but for the tables of a space that no CPU has loaded any more.
#[must_use = "unless it is finished, frames leak and stale translations stay"]
pub(crate) struct MmuGather<'a, H: Hardware, M, const N: usize> {
    cpu: Cpu<'a, 'a, H>,
    mem: &'a M,
    translations: Translations<'a, H::Set>,
    inner: TlbGather<'a, H::Set, HeldFrames<N>>,
    held: usize,
    /// The flush must come before the page-table lock is dropped.
    is_urgent: bool,
    /// If set, each flush is one request for the whole user half, with this reason, instead of one for what was
    /// recorded.
    everything: Option<Reason>,
    pending: Pending,
    /// The tables to be searched for large pages if the policy's range rule wants that.
    tables: Option<Root>,
    /// The lowest and the highest address recorded since the last flush.
    recorded: (u64, u64),
    total_pages: u64,
    /// Which CPUs can hold what was recorded since the last flush, but for what lies below `last`.
    reach: Reach,
    /// The last-level table below which something was recorded last, where each CPU has its own directories.
    last: Option<PhysAddr>,
    /// Which CPUs it has flushed on before.
    reached: Reach,
    pub(crate) has_directories: bool,
    /// Bytes that the operation has looked at: below last-level tables whose sharers are in `reached`, `reach` or those
    /// of `last`, or where there never was a table.
    looked_at: u64,
}

const NOTHING_RECORDED: (u64, u64) = (u64::MAX, 0);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    Nothing,
    Pages,
    Tables,
}

const USER_PAGES: u64 = crate::USER_END >> 12;

impl<'a, H: Hardware, M: Memory, const N: usize> MmuGather<'a, H, M, N> {
    /// For changes of the kernel's own mappings.
    pub(crate) fn of_kernel(cpu: &Cpu<'a, 'a, H>, mem: &'a M) -> Self {
        let translations = Translations::OfKernel;
        Self {
            cpu: *cpu,
            mem,
            translations,
            inner: TlbGather::new(translations, HeldFrames::new()),
            held: 0,
            is_urgent: false,
            everything: None,
            pending: Pending::Nothing,
            tables: None,
            recorded: NOTHING_RECORDED,
            total_pages: u64::MAX,
            reach: Reach::EVERYBODY,
            last: None,
            reached: Reach::NOBODY,
            has_directories: false,
            looked_at: 0,
        }
    }

    /// For changes of one space's mappings.
    pub(crate) fn of_space(cpu: &Cpu<'a, 'a, H>, mem: &'a M, pmap: &'a Pmap<H::Set>) -> Self {
        let translations = Translations::OfSpace(pmap.space());
        let inner = TlbGather::new(translations, HeldFrames::new());
        let has_directories = pmap.has_directories(cpu.hardware());
        let reach = if has_directories { Reach::NOBODY } else { Reach::EVERYBODY };
        let (tables, total_pages) = (Some(pmap.root()), pmap.total_pages());
        Self { translations, inner, tables, total_pages, reach, has_directories, ..Self::of_kernel(cpu, mem) }
    }

    /// A leaf is recorded, at `entry`.
    fn record_below(&mut self, entry: Entry) {
        if self.has_directories {
            self.enter_table(PhysAddr(entry.at.0 & !(PAGE_BYTES - 1)));
        }
    }

    /// Where each CPU has its own directories: the operation looks at so many bytes below the last-level table
    /// `last`.
    pub(crate) fn look_below(&mut self, last: PhysAddr, bytes: u64) {
        self.looked_at += bytes;
        self.enter_table(last);
    }

    /// Of so many bytes of its range the operation has found no table, and there never was one.
    pub(crate) fn look_at_holes(&mut self, bytes: u64) {
        self.looked_at += bytes;
    }

    fn enter_table(&mut self, last: PhysAddr) {
        if self.last != Some(last) {
            self.add_sharers();
            self.last = Some(last);
        }
    }

    /// The last entry below a table was changed.
    fn add_sharers(&mut self) {
        if let Some(last) = self.last.take() {
            self.add_sharers_of(last);
        }
    }

    fn add_sharers_of(&mut self, table: PhysAddr) {
        match self.mem.sharers(table) {
            Some(sharers) => self.reach.add(sharers),
            None => self.reach = Reach::EVERYBODY,
        }
    }

    /// True if what `old` mapped, an entry that an exchange returned, needs no flush: `accessed.rs`.
    pub(crate) fn is_cached_nowhere(&self, old: Pte) -> bool {
        accessed::is_cached_nowhere(&self.cpu, old)
    }

    /// Makes each flush from here on one of the whole user half.
    pub(crate) fn cover_user_half(&mut self, reason: Reason) {
        self.everything = Some(reason);
        self.reach = Reach::EVERYBODY;
    }

    /// A leaf was unhooked; `frame`, which it mapped, is put after the flush. The page is flushed even if the entry was
    /// not present, because another CPU may have cleared the present bit and not have flushed yet.
    pub(crate) fn unmap(&mut self, va: u64, entry: Entry, reason: Reason, frame: Frame) {
        self.record(Pending::Pages, va..va + entry.bytes());
        self.record_below(entry);
        if self.everything.is_none() {
            self.inner.unmap(&self.cpu, VirtAddr(va), entry.stride(), Scope::NonGlobal, reason, frame);
        } else {
            self.inner.hold(frame);
        }
        self.count_frame();
    }

    /// A leaf was changed that owns no frame, or keeps its frame.
    pub(crate) fn page(&mut self, va: u64, entry: Entry, scope: Scope, reason: Reason) {
        self.record(Pending::Pages, va..va + entry.bytes());
        self.record_below(entry);
        if self.everything.is_none() {
            self.inner.page(&self.cpu, VirtAddr(va), entry.stride(), scope, reason);
        }
    }

    /// Leaves were changed, either by this operation or by another one that has not flushed yet.
    pub(crate) fn range(&mut self, va: u64, pages: u64, scope: Scope, reason: Reason) {
        self.record(Pending::Pages, va..va + (pages << 12));
        self.reach = Reach::EVERYBODY;
        self.inner.range(&self.cpu, VirtAddr(va), pages, Stride::Page4K, scope, reason);
    }

    /// The page-table page that maps from `va` on was unhooked, from each CPU's directory too. Its entries have been
    /// recorded already, by this operation or by one before it, and may have been retired.
    pub(crate) fn table(&mut self, va: u64, frame: Frame) {
        self.record(Pending::Tables, va..va + 1);
        if self.has_directories {
            self.add_sharers_of(frame.at);
        }
        if self.mem.has_lockless_walkers() {
            self.inner.interrupt_walkers();
        }
        if self.everything.is_none() {
            self.inner.unmap_table(&self.cpu, VirtAddr(va), 0, frame);
        } else {
            self.inner.tables_freed();
            self.inner.hold(frame);
        }
        self.count_frame();
    }

    /// This operation over `range` overlapped another one, so an entry that it found gone may have been unhooked by the
    /// other and not be flushed yet. If this one has looked at each table of the range, it knows their sharers; where
    /// there is no table, the other one may have taken it out, unless there never was one.
    pub(crate) fn flush_overlap(&mut self, range: &Range<u64>) {
        let is_whole = self.looked_at == range.end - range.start;
        self.reach.merge(self.reached);
        let reach = if is_whole { self.reach } else { Reach::EVERYBODY };
        match self.cpu.tlb().policy().history.nested() {
            Nested::Range => {
                self.range(range.start, (range.end - range.start) / PAGE_BYTES, Scope::NonGlobal, Reason::RemovePte);
            }
            Nested::Everything => {
                self.inner.flush_everything();
                self.inner.tables_freed();
            }
        }
        self.reach = reach;
    }

    /// The next page is a dirty page of shared memory.
    pub(crate) fn will_unmap_shared_dirty(&mut self) {
        self.is_urgent |= self.cpu.tlb().policy().history.shared_dirty() == SharedDirty::UnderLock;
    }

    /// The page-table lock is about to be dropped, or would be if the tables were locked.
    pub(crate) fn before_table_unlock(&mut self) {
        if self.is_urgent {
            self.flush();
        }
    }

    /// Holds `frame`, already unhooked, until the flush: one of at most `N`, whose range is recorded as a whole.
    pub(crate) fn hold(&mut self, frame: Frame) {
        self.reach = Reach::EVERYBODY;
        self.inner.hold(frame);
    }

    /// One more frame is held. The last one that fits triggers the flush.
    fn count_frame(&mut self) {
        self.held += 1;
        if self.held == N {
            self.flush();
        }
    }

    fn record(&mut self, pending: Pending, range: Range<u64>) {
        self.recorded = (self.recorded.0.min(range.start), self.recorded.1.max(range.end));
        if self.pending != Pending::Tables {
            self.pending = pending;
        }
    }

    /// Flushes, and puts the frames that were held.
    pub(crate) fn flush(&mut self) {
        if let (Some(reason), true) = (self.everything, self.pending != Pending::Nothing) {
            self.inner.range(&self.cpu, VirtAddr(0), USER_PAGES, Stride::Page4K, Scope::NonGlobal, reason);
        }
        self.apply_range_rule();
        let full = core::mem::replace(&mut self.inner, TlbGather::new(self.translations, HeldFrames::new()));
        self.add_sharers();
        full.flush_within(&self.cpu, self.reach).into_frames().put_all(self.mem);
        if self.has_directories && self.everything.is_none() {
            self.reached.merge(self.reach);
            self.reach = Reach::NOBODY;
        }
        self.held = 0;
        self.is_urgent = false;
        self.pending = Pending::Nothing;
        self.recorded = NOTHING_RECORDED;
    }

    /// The lock of the regions is about to be dropped, after which other CPUs may free page tables. What the range rule
    /// reads from the tables is therefore read now, and the tables are not touched again. The sharers of the last one
    /// are read later, and are stored apart from it: a CPU that frees it earlier has found this operation under way,
    /// and has flushed on them all that lay below it ([`flush_overlap`](Self::flush_overlap)).
    pub(crate) fn before_regions_unlock(&mut self, _regions: &ReadGuard<'_>) {
        self.apply_range_rule();
        self.tables = None;
    }

    /// Supplies what the range rule of Linux 3.x needs before it decides to flush page by page.
    fn apply_range_rule(&mut self) {
        self.inner.set_active_pages(self.total_pages);
        let Some(root) = self.tables else { return };
        if self.inner.wants_large_page_walk(&self.cpu)
            && table::has_large_page(self.mem, root, self.recorded.0..self.recorded.1)
        {
            self.inner.flush_everything();
        }
    }

    /// Retires what was recorded and the frames that are held.
    pub(crate) fn retire(mut self, periods: &GracePeriods<'_>) -> Retired<HeldFrames<N>> {
        self.apply_range_rule();
        self.add_sharers();
        self.inner.retire_within(&self.cpu, periods, self.reach)
    }

    pub(crate) fn finish(mut self) {
        self.flush();
    }
}
