//! [`TlbGather`] (Linux: `mmu_gather`): unhook, flush everywhere, free (INV-1), in the only order that compiles.
//!
//! **The rule.** The caller clears a PTE, then records in one call which translation is gone and which frame it mapped:
//! [`TlbGather::unmap`], or [`TlbGather::unmap_table`] for a page-table page. The frames come out only as [`Flushed`]:
//! of [`TlbGather::flush`], of [`Pending::wait`](crate::Pending::wait) after [`TlbGather::issue`], or of
//! [`Retired::flush`](crate::Retired::flush) after [`TlbGather::retire`]. A gather that is dropped unflushed keeps its
//! frames for ever: a leak, not a use-after-free (INV-9).
//!
//! No frame that was recorded comes out before something was flushed: a gather that holds a frame and in which no
//! translation was recorded flushes everything. A frame that was in the collection before the gather took it does not
//! belong to the gather.
//!
//! ```compile_fail
//! # use tlbkit::{TlbGather, Translations, sync::AtomicU64};
//! # fn free(_: Vec<u32>) {}
//! let gather: TlbGather<'_, [AtomicU64; 1], Vec<u32>> = TlbGather::new(Translations::OfKernel, Vec::new());
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

use super::request::{Extent, Needs, Request, Step};
use crate::addr::{Stride, VirtAddr};
use crate::cpu::Cpu;
use crate::hardware::Hardware;
use crate::policy::Reason;
use crate::policy::history::packet::{Packet, Sends, wants_walk};
use crate::space::{SpaceId, Translations};

/// Whether the PTE that was changed had the global bit. A gather may contain both kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// It did not.
    NonGlobal,
    /// It did: a flush of everything in its place keeps that scope (INV-11).
    Global,
}

/// Frames that no CPU can reach any more by the old translations. A walker in software that takes no lock may still
/// read a page-table page among them (C-23).
#[derive(Debug)]
#[must_use = "the frames in it can be freed now"]
pub struct Flushed<F>(F);

impl<F> Flushed<F> {
    pub(crate) const fn new(frames: F) -> Self {
        Self(frames)
    }

    /// The frames, to be freed.
    pub fn into_frames(self) -> F {
        self.0
    }
}

/// What was recorded since the last flush.
struct Recorded {
    /// First and last byte; `start > end` while nothing is recorded.
    start: u64,
    end: u64,
    stride: Stride,
    needs: Needs,
    is_everything: bool,
    /// A frame is held that came without a translation.
    holds_unnamed: bool,
    /// Of the first translation.
    reason: Reason,
}

impl Recorded {
    const NOTHING: Self = Self {
        start: u64::MAX,
        end: 0,
        stride: Stride::Page1G,
        needs: Needs::NOTHING,
        is_everything: false,
        holds_unnamed: false,
        reason: Reason::RemovePte,
    };
}

/// Translations that were taken away, and their frames, waiting for one flush. `F` is any collection of frames.
#[must_use = "a gather that is not flushed leaks its frames"]
pub struct TlbGather<'s, S, F> {
    pub(crate) translations: Translations<'s, S>,
    recorded: Recorded,
    packet: Packet,
    frames: ManuallyDrop<F>,
}

impl<'s, S, F> TlbGather<'s, S, F> {
    /// An empty gather for `translations`, which keeps its frames in `frames`, an empty collection.
    pub const fn new(translations: Translations<'s, S>, frames: F) -> Self {
        Self { translations, recorded: Recorded::NOTHING, packet: Packet::EMPTY, frames: ManuallyDrop::new(frames) }
    }

    /// Records the translation of size `stride` at `va`, which was taken out of the page tables, and holds the `frame`
    /// that it mapped until the flush.
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

    /// Records what lay below a page-table page that was taken out, and holds that page, `frame`, until the flush. The
    /// cached paths through it are flushed too, also on CPUs that hold the space in lazy TLB mode (C-20, C-21).
    ///
    /// `va` is the first address below it. `unnamed_pages` counts, in pages of 4 KiB, what it still mapped from there
    /// on and has not been recorded: 512 for a page table of the last level that was taken out with its entries, 0 if
    /// each of its entries was recorded before.
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
        // One address below it is recorded in any case: invalidating that reaches the cached path to the page (C-27).
        self.range(cpu, va, unnamed_pages.max(1), Stride::Page4K, Scope::NonGlobal, Reason::FreeTable);
        self.frames.extend(Some(frame));
    }

    /// Records one translation of size `stride` at `va` that was taken away or narrowed, where no frame is freed. A
    /// policy of an older kernel may flush it at once.
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

    /// Records `pages` adjacent translations of size `stride` from `va` on, up to the end of the address space.
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
        // Kept as the last byte, and capped at the top of the address space: an end that wrapped would mean nothing.
        let last = first.saturating_add((pages - 1).saturating_mul(stride.bytes())) | (stride.bytes() - 1);
        self.recorded.reason = if self.is_empty() { why } else { self.recorded.reason };
        let recorded = &mut self.recorded;
        recorded.start = recorded.start.min(first);
        recorded.end = recorded.end.max(last);
        recorded.stride = recorded.stride.min(stride);
        recorded.needs = recorded.needs.with(match scope {
            Scope::NonGlobal => Needs::NON_GLOBAL,
            Scope::Global => Needs::GLOBAL,
        });
        if self.packet.add(cpu.tlb().policy(), first, pages, stride) == Sends::Now {
            self.send_now(cpu);
        }
    }

    #[cold]
    fn send_now<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) {
        cpu.shootdown(self.translations, self.request(cpu), self.reason());
        // Walkers may still be reading what is recorded later.
        let needs = if self.recorded.needs.any_of(Needs::ANSWER) { Needs::ANSWER } else { Needs::NOTHING };
        self.recorded = Recorded { reason: self.recorded.reason, needs, ..Recorded::NOTHING };
    }

    /// True if nothing was recorded since the last flush.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.recorded.start > self.recorded.end
    }

    /// Records that a page-table page is among what is freed, as [`unmap_table`](Self::unmap_table) does for its own
    /// page.
    #[inline]
    pub const fn tables_freed(&mut self) {
        self.recorded.needs = self.recorded.needs.with(Needs::TABLES);
    }

    /// For a kernel whose walkers take no lock and hold interrupts back instead (C-23): makes the flush interrupt each
    /// CPU that may use the space, and leave none to its host. CPUs that run something else are left alone as always,
    /// and so is a CPU that defers flushes of kernel addresses: no walker is on its way there. It comes before the
    /// first table is recorded, as a policy of an older kernel may flush that at once. No CPU acknowledges such a flush
    /// before it has flushed ([`Hardware::acknowledgement`]). Kernels that neither have [`Hardware::flush_by_host`] nor
    /// use INVLPGB or [`Hardware::directories`] need not call it for their walkers.
    #[inline]
    pub const fn interrupt_walkers(&mut self) {
        self.recorded.needs = self.recorded.needs.with(Needs::ANSWER);
    }

    /// Says how many pages the space has mapped, which a range rule of the feature `history` takes for active entries.
    #[inline]
    pub const fn set_active_pages(&mut self, pages: u64) {
        self.packet.set_active_pages(pages);
    }

    /// True if the policy wants the page tables searched for large pages before this is flushed page by page.
    #[must_use]
    pub fn wants_large_page_walk<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> bool {
        wants_walk(&cpu.tlb().policy().range) && !self.is_empty() && !self.is_over_ceiling(cpu)
    }

    /// Makes the next flush a full one, whatever was recorded and even if nothing was: the caller knows better. In a
    /// gather of a space that is all of the space; global entries are flushed only if something was recorded with
    /// [`Scope::Global`].
    pub const fn flush_everything(&mut self) {
        self.recorded.is_everything = true;
    }

    /// Holds `frame`, to which no single page belongs, until the flush: one that several recorded pages shared, or one
    /// of a range that is recorded as a whole. Use [`unmap`](Self::unmap) for everything else.
    ///
    /// If nothing is recorded in this gather, before or after, the flush is one of everything, as after
    /// [`flush_everything`](Self::flush_everything): it cannot be known what mapped the frame. If something is
    /// recorded, only that is flushed: the caller states that it mapped the frame.
    #[inline]
    pub fn hold<T>(&mut self, frame: T)
    where
        F: Extend<T>,
    {
        self.recorded.holds_unnamed = true;
        self.frames.extend(Some(frame));
    }

    /// Flushes what was recorded, everywhere, and gives the frames back. If nothing was recorded and no frame is held,
    /// only the deferred flushes of the space are done, those of a [`TlbBatch`](crate::TlbBatch) or of an issued
    /// gather: the PTE that the caller found cleared may be one of theirs. So an unmap that finds nothing ends with
    /// this call like any other.
    ///
    /// This call does not know of a gather that another CPU has filled and not flushed yet. (Linux detects it:
    /// `mm_tlb_flush_nested`.) So a kernel keeps other CPUs from zapping the same range until this call has returned,
    /// by a lock that they would hold too; `mmap_lock` held for reading is not enough. A kernel that does not must
    /// record each PTE that it finds cleared as well, with [`page`](Self::page) (C-28).
    ///
    /// # Panics
    /// If another CPU has to flush and interrupts are off (INV-7); if called while this CPU waits for another flush.
    #[inline(always)]
    pub fn flush<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>) -> Flushed<F> {
        if self.has_work(cpu) {
            cpu.shootdown(self.translations, self.request(cpu), self.reason());
        }
        self.into_flushed()
    }

    /// Flushes as [`flush`](Self::flush) does, calls `free` with the frames, and leaves the gather empty, to be used
    /// again: nothing is moved, and nothing allocated anew. `free` takes the frames out of the collection.
    ///
    /// ```
    /// # use tlbkit::*;
    /// fn unmap<H: Hardware>(
    ///     gather: &mut TlbGather<'_, H::Set, Vec<u64>>,
    ///     cpu: &Cpu<'_, '_, H>,
    ///     pages: impl Iterator<Item = VirtAddr>,
    ///     clear: impl Fn(VirtAddr) -> u64,
    ///     free: impl Fn(u64),
    /// ) {
    ///     for va in pages {
    ///         if gather.held() == 64 {
    ///             gather.flush_and_reuse(cpu, |frames| frames.drain(..).for_each(&free));
    ///         }
    ///         gather.unmap(cpu, va, Stride::Page4K, Scope::NonGlobal, Reason::RemovePte, clear(va));
    ///     }
    ///     gather.flush_and_reuse(cpu, |frames| frames.drain(..).for_each(&free));
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`flush`](Self::flush); what was recorded is still in the gather then. If it was because interrupts were off,
    /// the request has been sent, and every further flush on this CPU panics until [`Cpu::bring_up`] has ended it.
    pub fn flush_and_reuse<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>, free: impl FnOnce(&mut F)) {
        if self.has_work(cpu) {
            cpu.shootdown(self.translations, self.request(cpu), self.reason());
        }
        (self.recorded, self.packet) = (Recorded::NOTHING, Packet::EMPTY);
        free(&mut self.frames);
    }

    /// Frames that are held: what a caller whose collection is full at some number looks at before it clears another
    /// entry, since the collection itself may panic.
    #[must_use]
    pub fn held<'f>(&'f self) -> usize
    where
        &'f F: IntoIterator<IntoIter: ExactSizeIterator>,
    {
        (&*self.frames).into_iter().len()
    }

    /// True if there is something to flush.
    pub(crate) fn has_work<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> bool {
        !self.is_empty() || self.is_due_unnamed(cpu)
    }

    /// The frames, when no CPU can reach them any more.
    pub(crate) fn into_flushed(self) -> Flushed<F> {
        Flushed::new(ManuallyDrop::into_inner(self.frames))
    }

    /// True if a flush is due though nothing was recorded. A frame that is added after its page was flushed, which
    /// policies of older kernels do at once, needs no second flush.
    #[inline(never)]
    fn is_due_unnamed<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> bool {
        self.recorded.is_everything
            || self.recorded.needs.any_of(Needs::TABLES)
            || (self.recorded.holds_unnamed && !self.packet.has_sent())
            || cpu.tlb().owed.is_owed(self.space_id())
    }

    /// Why the first translation was taken away.
    pub(crate) const fn reason(&self) -> Reason {
        self.recorded.reason
    }

    /// The space whose translations are flushed, or the kernel's id.
    pub(crate) const fn space_id(&self) -> SpaceId {
        match self.translations {
            Translations::OfSpace(space) => space.id,
            Translations::OfKernel => SpaceId::KERNEL,
        }
    }

    /// What was recorded, as a request that was not announced yet.
    #[inline(always)]
    pub(crate) fn request<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> Request<'_> {
        let extent = if self.recorded.is_everything || self.is_empty() {
            Extent::Everything
        } else if let Some(extent) = self.packet.extent(cpu.tlb().policy()) {
            extent
        } else if self.is_over_ceiling(cpu) {
            Extent::Everything
        } else {
            Extent::Range { start: VirtAddr(self.recorded.start), pages: self.pages() as u32 }
        };
        let step = Step::from_stride(self.recorded.stride);
        let request = Request { extent, step, ..Request::everything(self.recorded.needs) };
        let (request, has_generation) = match self.translations {
            Translations::OfSpace(space) => (request.in_space(space), !cpu.has_broadcast()),
            Translations::OfKernel => (request, false),
        };
        // Where no generation shows a CPU what it has missed, the caller may have found cleared what a batch or an
        // issued gather has not flushed yet: `owed.rs`.
        if !has_generation && cpu.tlb().owed.is_owed(request.space) {
            return Request { extent: Extent::Everything, ..request };
        }
        request
    }

    #[inline]
    const fn pages(&self) -> u64 {
        ((self.recorded.end - self.recorded.start) >> self.recorded.stride.shift()) + 1
    }

    fn is_over_ceiling<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>) -> bool {
        cpu.tlb().knobs().is_everything(&cpu.tlb().policy().range, self.pages(), self.packet.active_pages())
    }
}
