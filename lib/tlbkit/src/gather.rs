//! `TlbGather`: unhook, then flush everywhere, then free (INV-1), made unavoidable by type.
//!
//! The caller changes page tables and tells the gather in one call which translation is gone and which frame it named:
//! [`TlbGather::unmap`], or [`TlbGather::unmap_table`] for a page-table page. The frames come out only of
//! [`TlbGather::flush`], or of [`Pending::wait`](crate::Pending::wait) after [`TlbGather::issue`], as [`Flushed`]. A
//! gather that is dropped unflushed keeps its frames for ever: a leak, not a use-after-free (INV-9).
//!
//! No frame comes out before something was flushed: a gather that keeps a frame and in which nothing was named flushes
//! everything.
//!
//! ```compile_fail
//! # use tlbkit::{TlbGather, Translations, sync::AtomicU64};
//! # fn free(_: Vec<u32>) {}
//! let gather: TlbGather<'_, [AtomicU64; 1], Vec<u32>> = TlbGather::new(Translations::OfKernel, vec![1u32]);
//! free(gather.frames); // private: freeing before flushing does not compile
//! ```
//!
//! ```compile_fail
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! fn twice<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     let freed = gather.flush(&cpu).into_frames();
//!     gather.hold(3); // moved: nothing can be added after the flush
//! }
//! ```

use core::mem::ManuallyDrop;

use crate::addr::{SpaceToken, Stride, VirtAddr};
use crate::address_space::{Generation, SpaceId, Translations};
use crate::hardware::Hardware;
use crate::history::packet::{Packet, Sends, wants_walk};
use crate::reason::Reason;
use crate::request::{Extent, Needs, Request, Step};
use crate::tlb::Cpu;

/// Whether the entry that was changed had the global bit. A gather may name both kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// It had not.
    Local,
    /// It had: a flush that is collapsed keeps that (INV-11).
    Global,
}

/// Frames whose old translations are gone everywhere.
#[derive(Debug)]
#[must_use = "the frames in it can be freed now"]
pub struct Flushed<F>(F);

impl<F> Flushed<F> {
    pub(crate) const fn of(frames: F) -> Self {
        Self(frames)
    }

    /// The frames, to be freed.
    pub fn into_frames(self) -> F {
        self.0
    }
}

/// Invalidations and frames that wait for one flush. `F` is any collection of frames.
#[must_use = "a gather that is not flushed leaks its frames"]
pub struct TlbGather<'s, S, F> {
    pub(crate) translations: Translations<'s, S>,
    /// The first byte that was named, and the last: the other way round while nothing was.
    start: u64,
    end: u64,
    stride: Stride,
    needs: Needs,
    is_everything: bool,
    /// A frame was kept by a call that named nothing.
    holds_unnamed: bool,
    pub(crate) reason: Reason,
    packet: Packet,
    frames: ManuallyDrop<F>,
}

impl<'s, S, F> TlbGather<'s, S, F> {
    /// An empty gather for `translations`; `frames` is where it keeps frames.
    #[inline(always)]
    pub const fn new(translations: Translations<'s, S>, frames: F) -> Self {
        Self {
            translations,
            start: u64::MAX,
            end: 0,
            stride: Stride::Page1G,
            needs: Needs::NOTHING,
            is_everything: false,
            holds_unnamed: false,
            reason: Reason::RemovePte,
            packet: Packet::EMPTY,
            frames: ManuallyDrop::new(frames),
        }
    }

    /// Names the translation of size `stride` at `va`, which was taken out of the page tables, and keeps the `frame`
    /// that it named until the flush.
    #[inline]
    pub fn unmap<T, H: Hardware<Set = S>>(
        &mut self,
        cpu: &Cpu<'_, '_, H>,
        va: VirtAddr,
        stride: Stride,
        scope: Scope,
        why: Reason,
        frame: T,
    ) where
        F: Extend<T>,
    {
        self.range(cpu, va, 1, stride, scope, why);
        self.frames.extend(Some(frame));
    }

    /// Names what lay below a page-table page that was taken out, and keeps that page, `frame`, until the flush: paths
    /// through it go too, on CPUs that hold the space lazily as well (C-20, C-21).
    ///
    /// `va` is the first address below it. `unnamed_pages` counts, in pages of 4 KiB, what it still mapped from there
    /// on and nobody has named: 512 for a table of the last level that was taken out with its entries, 0 if each of
    /// its entries was named before.
    #[inline]
    pub fn unmap_table<T, H: Hardware<Set = S>>(
        &mut self,
        cpu: &Cpu<'_, '_, H>,
        va: VirtAddr,
        unnamed_pages: u64,
        frame: T,
    ) where
        F: Extend<T>,
    {
        self.tables_freed();
        // One address below it is named in any case: invalidating that reaches the cached path to the table (C-27).
        self.range(cpu, va, unnamed_pages.max(1), Stride::Page4K, Scope::Local, Reason::FreeTable);
        self.frames.extend(Some(frame));
    }

    /// Names one translation of size `stride` at `va` that was revoked, where no frame is freed. A policy of an older
    /// kernel may flush it at once.
    #[inline]
    pub fn page<H: Hardware<Set = S>>(
        &mut self,
        cpu: &Cpu<'_, '_, H>,
        va: VirtAddr,
        stride: Stride,
        scope: Scope,
        why: Reason,
    ) {
        self.range(cpu, va, 1, stride, scope, why);
    }

    /// Names `pages` adjoining translations of size `stride` from `va` on, as far as there are addresses.
    #[inline(always)]
    pub fn range<H: Hardware<Set = S>>(
        &mut self,
        cpu: &Cpu<'_, '_, H>,
        va: VirtAddr,
        pages: u64,
        stride: Stride,
        scope: Scope,
        why: Reason,
    ) {
        if pages == 0 {
            return;
        }
        let first = va.0 & !(stride.bytes() - 1);
        self.reason = if self.is_empty() { why } else { self.reason };
        self.note(first, pages, stride, scope);
        if self.packet.add(cpu.tlb().policy(), first, pages, stride) == Sends::Now {
            self.send_now(cpu);
        }
    }

    #[inline(always)]
    fn note(&mut self, first: u64, pages: u64, stride: Stride, scope: Scope) {
        // Kept as the last byte, and held at the top of the address space: an end that wrapped would name nothing.
        let last = first.saturating_add((pages - 1).saturating_mul(stride.bytes())) | (stride.bytes() - 1);
        self.start = self.start.min(first);
        self.end = self.end.max(last);
        self.stride = self.stride.min(stride);
        self.needs = self.needs.with(match scope {
            Scope::Local => Needs::LOCAL,
            Scope::Global => Needs::GLOBAL,
        });
    }

    #[cold]
    fn send_now<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) {
        self.send(cpu);
        (self.start, self.end, self.stride) = (u64::MAX, 0, Stride::Page1G);
        (self.needs, self.is_everything, self.holds_unnamed) = (Needs::NOTHING, false, false);
    }

    /// True if nothing was named since the last flush.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.start > self.end
    }

    /// A page-table page is among what is freed: what [`unmap_table`](Self::unmap_table) says for one that it keeps.
    #[inline]
    pub const fn tables_freed(&mut self) {
        self.needs = self.needs.with(Needs::TABLES);
    }

    /// Mapped pages of the space: what a range rule of the feature `history` takes for active entries.
    #[inline]
    pub const fn set_active_pages(&mut self, pages: u64) {
        self.packet.set_active_pages(pages);
    }

    /// True if the policy wants the page tables searched for large pages before this is flushed page by page.
    #[must_use]
    pub fn wants_large_page_walk<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> bool {
        wants_walk(&cpu.tlb().policy().range) && !self.is_empty() && !self.is_over_ceiling(cpu)
    }

    /// Makes the next flush a full one, whatever was named and even if nothing was: the caller knows better. In a
    /// gather of a space that is all of the space; global entries go only if something was named with
    /// [`Scope::Global`].
    pub const fn flush_everything(&mut self) {
        self.is_everything = true;
    }

    /// Keeps `frame`, to which no single page belongs, until the flush: one that several named pages shared, or one of
    /// a range that is named as a whole. Whatever else is freed comes by [`unmap`](Self::unmap).
    ///
    /// If nothing is named in this gather, before or after, the flush is one of everything, as
    /// [`flush_everything`](Self::flush_everything) says: it cannot be known what led to the frame. If something is,
    /// only that is flushed: the caller states that this led to the frame.
    #[inline]
    pub fn hold<T>(&mut self, frame: T)
    where
        F: Extend<T>,
    {
        self.holds_unnamed = true;
        self.frames.extend(Some(frame));
    }

    /// Flushes what was named, everywhere, and gives the frames back. If nothing was named and no frame is kept, only
    /// what a [`TlbBatch`](crate::TlbBatch) or an issued gather owes to the space is flushed: the entry that the caller
    /// found gone may be one of those. So an unmap that finds nothing ends with this call like any other.
    ///
    /// A gather that another CPU has filled and not flushed yet is not known here. So a kernel keeps others from
    /// changing the same range until this call has returned, by a lock over the regions, not that of the page table;
    /// one that does not names each page that it finds gone as well, with [`page`](Self::page) (C-28).
    ///
    /// # Panics
    /// If another CPU must be asked and interrupts are off (INV-7); if called while this CPU waits for another flush.
    #[inline(always)]
    pub fn flush<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>) -> Flushed<F> {
        if self.has_work(cpu) {
            self.send(cpu);
        }
        self.into_flushed()
    }

    /// True if there is something to flush.
    #[inline(always)]
    pub(crate) fn has_work<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> bool {
        !self.is_empty() || self.is_due_unnamed(cpu)
    }

    /// The frames, when no CPU can reach them any more.
    #[inline(always)]
    pub(crate) fn into_flushed(self) -> Flushed<F> {
        Flushed::of(ManuallyDrop::into_inner(self.frames))
    }

    /// True if a flush is due though nothing is named. A frame that came after its page had been flushed at once, as
    /// policies of older kernels do, needs no other.
    #[inline(never)]
    fn is_due_unnamed<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> bool {
        self.is_everything
            || self.needs.any_of(Needs::TABLES)
            || (self.holds_unnamed && !self.packet.has_sent())
            || cpu.tlb().owed.has(self.space_id())
    }

    /// The space whose translations go, or the kernel's id.
    #[inline(always)]
    pub(crate) const fn space_id(&self) -> SpaceId {
        match self.translations {
            Translations::OfSpace(space) => space.id,
            Translations::OfKernel => SpaceId::KERNEL,
        }
    }

    // By reference and out of line, so that the gather is not moved.
    #[inline(never)]
    fn send<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) {
        cpu.shootdown(self.translations, self.request(cpu), self.reason);
    }

    /// What was named, as a request that was not announced yet.
    #[inline(always)]
    pub(crate) fn request<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> Request<'_> {
        let (space, token, is_owed) = match self.translations {
            Translations::OfSpace(space) => (space.id, space.token, false),
            // Kernel addresses have no generation that would show a CPU what it has missed: if a gather that was issued
            // owes a flush, the caller may have found gone what that one took out.
            Translations::OfKernel => (SpaceId::KERNEL, SpaceToken(0), cpu.tlb().owed.has(SpaceId::KERNEL)),
        };
        let extent = if is_owed { Extent::Everything } else { self.extent(cpu) };
        Request { space, token, generation: Generation::NEVER, extent, step: Step::of(self.stride), needs: self.needs }
    }

    #[inline(always)]
    fn extent<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> Extent<'_> {
        if self.is_everything || self.is_empty() {
            return Extent::Everything;
        }
        if let Some(extent) = self.packet.extent(cpu.tlb().policy()) {
            return extent;
        }
        if self.is_over_ceiling(cpu) {
            return Extent::Everything;
        }
        Extent::Range { start: VirtAddr(self.start), pages: self.pages() as u32 }
    }

    #[inline]
    const fn pages(&self) -> u64 {
        ((self.end - self.start) >> self.stride.shift()) + 1
    }

    #[inline(always)]
    fn is_over_ceiling<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> bool {
        cpu.tlb().knobs().is_everything(&cpu.tlb().policy().range, self.pages(), self.packet.active_pages())
    }
}
