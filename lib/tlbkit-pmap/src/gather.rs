//! Frames on their way out: unhooked, flushed, and only then put back (INV-1, INV-9).

use crate::memory::{Frame, Memory};
use crate::table::{self, Root};
use core::ops::Range;
use tlbkit::{
    AddressSpace, Cpu, Hardware, Nested, PAGE_BYTES, PhysAddr, Reason, Scope, SharedDirty, Stride, TlbGather,
    Translations, VirtAddr,
};

/// Frames with which one gather is flushed: 512 pages and their table, and about what fits a 4 KiB stack frame. Few
/// under loom, whose stacks are small.
pub(crate) const SWEEP: usize = if cfg!(loom) { 4 } else { 513 };

/// Up to `N` frames, as address and size in one word each. The protocol moves it in and out; nobody looks inside.
pub(crate) struct Held<const N: usize> {
    words: [u64; N],
    count: usize,
}

impl<const N: usize> Held<N> {
    pub(crate) const fn new() -> Self {
        Self { words: [0; N], count: 0 }
    }

    pub(crate) fn put_all(self, mem: &impl Memory) {
        for word in &self.words[..self.count] {
            mem.put(Frame { at: PhysAddr(word & !0xfff), shift: (word & 0xfff) as u8 });
        }
    }
}

impl<const N: usize> Extend<Frame> for Held<N> {
    fn extend<I: IntoIterator<Item = Frame>>(&mut self, frames: I) {
        for frame in frames {
            assert!(self.count < N, "a gather of {N} frames is full");
            self.words[self.count] = frame.at.0 | u64::from(frame.shift);
            self.count += 1;
        }
    }
}

/// One operation's invalidations and the frames that wait for them. Every removal of this crate goes through it.
#[must_use = "frames leak and stale translations live on unless it is finished"]
pub(crate) struct Unhook<'a, H: Hardware, M, const N: usize> {
    cpu: Cpu<'a, 'a, H>,
    mem: &'a M,
    translations: Translations<'a, H::Set>,
    gather: TlbGather<'a, H::Set, Held<N>>,
    held: usize,
    /// Something was taken out that must be flushed before the lock of its page table is let go.
    is_urgent: bool,
    /// If set, one request for the whole user half, with this reason, stands for the single ones.
    everything: Option<Reason>,
    pending: Pending,
    /// The tables that may have to be searched for large pages, and the addresses named so far.
    tables: Option<Root>,
    named: (u64, u64),
    total_pages: u64,
}

const NOTHING_NAMED: (u64, u64) = (u64::MAX, 0);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    Nothing,
    Pages,
    Tables,
}

const USER_PAGES: u64 = crate::USER_END >> 12;

impl<'a, H: Hardware, M: Memory, const N: usize> Unhook<'a, H, M, N> {
    /// For changes of the kernel's own mappings.
    pub(crate) fn of_kernel(cpu: &Cpu<'a, 'a, H>, mem: &'a M) -> Self {
        let translations = Translations::OfKernel;
        let gather = TlbGather::new(translations, Held::new());
        let (everything, pending) = (None, Pending::Nothing);
        let (held, is_urgent) = (0, false);
        let (tables, named, total_pages) = (None, NOTHING_NAMED, u64::MAX);
        Self { cpu: *cpu, mem, translations, gather, held, is_urgent, everything, pending, tables, named, total_pages }
    }

    /// For changes of one space's mappings.
    pub(crate) fn of_space(
        cpu: &Cpu<'a, 'a, H>,
        mem: &'a M,
        space: &'a AddressSpace<H::Set>,
        root: Root,
        total_pages: u64,
    ) -> Self {
        let translations = Translations::OfSpace(space);
        let gather = TlbGather::new(translations, Held::new());
        Self { translations, gather, tables: Some(root), total_pages, ..Self::of_kernel(cpu, mem) }
    }

    /// From here on each update asks for the whole user half.
    pub(crate) fn everything(&mut self, reason: Reason) {
        self.everything = Some(reason);
    }

    /// A leaf was taken out, and `frame`, which it mapped, is put back after the flush. It is named even if it was not
    /// present: the flush that took its presence may be another CPU's, and still to come.
    pub(crate) fn unmap(&mut self, va: u64, stride: Stride, reason: Reason, frame: Frame) {
        self.note(Pending::Pages, va..va + stride.bytes());
        if self.everything.is_none() {
            self.gather.unmap(&self.cpu, VirtAddr(va), stride, Scope::Local, reason, frame);
        } else {
            self.gather.hold(frame);
        }
        self.count();
    }

    /// A leaf was changed that owns no frame, or keeps it.
    pub(crate) fn page(&mut self, va: u64, stride: Stride, scope: Scope, reason: Reason) {
        self.note(Pending::Pages, va..va + stride.bytes());
        if self.everything.is_none() {
            self.gather.page(&self.cpu, VirtAddr(va), stride, scope, reason);
        }
    }

    /// Leaves were changed, by this operation or by one that has not flushed yet.
    pub(crate) fn range(&mut self, va: u64, pages: u64, scope: Scope, reason: Reason) {
        self.note(Pending::Pages, va..va + (pages << 12));
        self.gather.range(&self.cpu, VirtAddr(va), pages, Stride::Page4K, scope, reason);
    }

    /// A table was taken out whose first address is `va`, and whose entries have been named.
    pub(crate) fn table(&mut self, va: u64, frame: Frame) {
        self.note(Pending::Tables, va..va + 1);
        if self.everything.is_none() {
            self.gather.unmap_table(&self.cpu, VirtAddr(va), 0, frame);
        } else {
            self.gather.tables_freed();
            self.gather.hold(frame);
        }
        self.count();
    }

    /// This operation over `range` overlaps another: what it found gone may be the other's, and not flushed yet.
    pub(crate) fn overlapped(&mut self, range: &Range<u64>) {
        match self.cpu.tlb().policy().history.nested() {
            Nested::Range => {
                self.range(range.start, (range.end - range.start) / PAGE_BYTES, Scope::Local, Reason::RemovePte);
            }
            Nested::Everything => {
                self.gather.flush_everything();
                self.gather.tables_freed();
            }
        }
    }

    /// A page of shared memory that somebody has stored to is about to be named.
    pub(crate) fn meet_shared_dirty(&mut self) {
        self.is_urgent |= self.cpu.tlb().policy().history.shared_dirty() == SharedDirty::UnderLock;
    }

    /// The lock of the page table that was swept is about to be let go, or would be if the tables were locked.
    pub(crate) fn leave_table(&mut self) {
        if self.is_urgent {
            self.update();
        }
    }

    /// Keeps `frame`, already unhooked, until the flush: one of a range that is named as a whole before there are `N`.
    pub(crate) fn hold(&mut self, frame: Frame) {
        self.gather.hold(frame);
        self.count();
    }

    /// One frame more is held; the last that fits has all of them flushed.
    fn count(&mut self) {
        self.held += 1;
        if self.held == N {
            self.update();
        }
    }

    fn note(&mut self, pending: Pending, range: Range<u64>) {
        self.named = (self.named.0.min(range.start), self.named.1.max(range.end));
        if self.pending != Pending::Tables {
            self.pending = pending;
        }
    }

    /// Flushes, and puts back what was held.
    pub(crate) fn update(&mut self) {
        if let (Some(reason), true) = (self.everything, self.pending != Pending::Nothing) {
            self.gather.range(&self.cpu, VirtAddr(0), USER_PAGES, Stride::Page4K, Scope::Local, reason);
        }
        self.judge_range();
        let full = core::mem::replace(&mut self.gather, TlbGather::new(self.translations, Held::new()));
        full.flush(&self.cpu).into_frames().put_all(self.mem);
        self.held = 0;
        self.is_urgent = false;
        self.pending = Pending::Nothing;
        self.named = NOTHING_NAMED;
    }

    /// The lock of the regions is about to be let go, and others may free tables then: what these say of the flush is
    /// asked now, and they are not looked at again.
    pub(crate) fn leave_regions(&mut self) {
        self.judge_range();
        self.tables = None;
    }

    /// What the rule of Linux 3.x wants to know before a range is flushed page by page.
    fn judge_range(&mut self) {
        self.gather.set_active_pages(self.total_pages);
        let Some(root) = self.tables else { return };
        if self.gather.wants_large_page_walk(&self.cpu)
            && table::has_large_page(self.mem, root, self.named.0..self.named.1)
        {
            self.gather.flush_everything();
        }
    }

    pub(crate) fn finish(mut self) {
        self.update();
    }
}
