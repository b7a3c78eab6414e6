//! The shootdown: how one CPU, the initiator, takes translations away from all of them. Those that it asks for help are
//! its responders; what they do is in `answer.rs`.
//!
//! What is asked lies in one of the initiator's mailboxes. Of whom, says the outbox of that mailbox, one bit a
//! responder: that is the truth. The responder's inbox, one bit an initiator, is only a hint where to look:
//!
//! ```text
//!   initiator (shootdown, wait)               responder (answer)
//!   write the mailbox
//!   outbox := responders        (Release)     take the hints of its inbox    (Acquire)
//!   leave a hint in each inbox  (Release)     is its bit in that outbox?     (Acquire)
//!   interrupt                                 if so: read the mailbox, flush
//!   wait until outbox = 0       (Acquire)     clear its bit                  (Release)
//! ```
//! A responder reads a mailbox only while its bit in that outbox is set, and only the responder clears the bit. So the
//! mailbox does not change while it is read, a request that is sent twice is carried out once, and an interrupt that
//! finds nothing does no harm (C-56, C-63). Which mailbox is free, and how a hint leads to the right one, is in
//! `ring.rs`; `docs/life-of-an-unmap.md` follows one call through all of these files.

use core::slice;

use crate::addr::{Stride, VirtAddr};
use crate::address_space::{AddressSpace, Generation, Translations};
use crate::cpu_state::Presence;
use crate::hardware::{Event, Hardware};
use crate::reason::Reason;
use crate::request::{Extent, Needs, Request, Step};
use crate::sync::{Ordering, fence};
use crate::tlb::{Cpu, flag};

/// Whether a flush that was announced has anybody to ask.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// No other CPU holds what goes; this one has flushed.
    None,
    /// Others may; nothing has been flushed yet.
    Perhaps,
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Takes away, on every CPU, the translations that `request` names. The page tables have been changed before.
    ///
    /// When it returns, no CPU can use one of them (INV-6). A CPU that ran the space has flushed. Any other finds the
    /// new generation before its next program of that space runs, and flushes then; until that time its TLB may still
    /// hold them. With [`Needs::TABLES`] no CPU walks the old page tables any more, lazily or not. Before it returns
    /// nothing is promised: the other CPUs go on using what they hold, so nothing may be freed yet.
    #[inline(never)]
    pub(crate) fn shootdown(&self, translations: Translations<'_, H::Set>, mut request: Request<'_>, reason: Reason) {
        let Some(space) = self.begin_flush(translations, &mut request) else {
            return self.flush_with_responders(translations, &request, reason);
        };
        // As `announce` ends, here and below: a closure of its own, which the compiler puts in its place.
        self.with_irqs_off_here(|irqs| self.flush_loaded(|| space.generation(), &request, irqs));
        self.end_alone();
    }

    /// The same for a `request` that is of no space in particular.
    #[inline(always)]
    pub(crate) fn shootdown_of_many(&self, request: &Request<'_>, reason: Reason) {
        let mut announced = *request;
        _ = self.begin_flush(Translations::OfKernel, &mut announced);
        self.flush_with_responders(Translations::OfKernel, request, reason);
    }

    /// Announces a flush, and ends it if no other CPU can hold what goes.
    #[inline(always)]
    pub(crate) fn announce(&self, translations: Translations<'_, H::Set>, request: &mut Request<'_>) -> Others {
        let Some(space) = self.begin_flush(translations, request) else { return Others::Perhaps };
        self.with_irqs_off_here(|irqs| self.flush_loaded(|| space.generation(), request, irqs));
        self.end_alone();
        Others::None
    }

    /// Announces a flush; the space, which runs here, if no other CPU can hold what goes.
    #[inline(always)]
    fn begin_flush<'s>(
        &self,
        translations: Translations<'s, H::Set>,
        request: &mut Request<'_>,
    ) -> Option<&'s AddressSpace<H::Set>> {
        self.assert_here();
        self.assert_not_inside_another();
        self.hardware.event(Event::FlushBegin(request.pages().unwrap_or(u32::MAX)));
        match translations {
            // Whoever joins the space from here on finds the new generation, and flushes by itself (INV-2).
            Translations::OfSpace(space) => {
                request.generation = space.advance();
                if self.tlb.is_trim_due(request.generation, request.needs) {
                    request.needs = request.needs.with(Needs::TRIM);
                }
                // The common case, a program on one CPU: it asks nobody.
                self.is_alone_with(space, request.needs).then_some(space)
            }
            // SeqCst: the PTE change comes before the online CPUs are read; partner is the fence in `bring_up`.
            Translations::OfKernel => {
                fence(Ordering::SeqCst);
                None
            }
        }
    }

    #[inline(always)]
    fn end_alone(&self) {
        self.hardware.event(Event::FlushLocalDone);
        self.hardware.event(Event::FlushEnd);
    }

    /// The rest of a flush that has been announced, where other CPUs may hold what goes: when it returns, all that had
    /// to flush have done so.
    #[inline(never)]
    pub(crate) fn flush_with_responders(
        &self,
        translations: Translations<'_, H::Set>,
        request: &Request<'_>,
        reason: Reason,
    ) {
        // From here until it is 0 again a handler that flushes would take the same mailbox.
        self.state.is_waiting.set(1);
        let is_alone = self.state.issued.get() == 0;
        let slot = if is_alone { 0 } else { self.find_free_slot().unwrap_or_else(|| self.wait_for_slot()) };
        let began = self.before_asking(request);
        // A policy of its own is left to the longer way, so that the short one stands here once.
        let is_short = is_alone && !self.has_flag(flag::LOCAL_FIRST);
        if is_short && let Some((of_outbox, count)) = self.ask(translations, request) {
            self.after_asking(request, reason, count, began);
            if count != 0 {
                self.wait(0, 0, slice::from_ref(of_outbox));
            }
        } else {
            self.flush_after(slot, translations, request, reason, began);
        }
        self.state.is_waiting.set(0);
        self.hardware.event(Event::FlushEnd);
    }

    /// The same from the asking on, by mailbox `slot`, for any number of CPUs and any request.
    #[inline(never)]
    fn flush_after(
        &self,
        slot: usize,
        translations: Translations<'_, H::Set>,
        request: &Request<'_>,
        reason: Reason,
        began: u64,
    ) {
        let asked = self.ask_any(slot, translations, request);
        if !self.has_flag(flag::LOCAL_FIRST) {
            self.flush_here(request);
        }
        self.count(request, reason, asked.count, began);
        if asked.count != 0 {
            self.wait(slot, asked.start, asked.words);
        }
    }

    /// What an initiator does before it asks: the flush here, under some policies. When it began, for
    /// [`after_asking`](Self::after_asking).
    #[inline(always)]
    pub(crate) fn before_asking(&self, request: &Request<'_>) -> u64 {
        let began = self.clock();
        if self.has_flag(flag::LOCAL_FIRST) {
            self.flush_here(request);
        }
        began
    }

    /// What it does while those that it has asked work, `responders` in number.
    #[inline(always)]
    pub(crate) fn after_asking(&self, request: &Request<'_>, reason: Reason, responders: u32, began: u64) {
        if !self.has_flag(flag::LOCAL_FIRST) {
            self.flush_here_inlined(request);
        }
        self.count(request, reason, responders, began);
    }

    /// Flushes here what `request` names.
    #[inline(never)]
    pub(crate) fn flush_here(&self, request: &Request<'_>) {
        self.flush_here_inlined(request);
    }

    #[inline(always)]
    fn flush_here_inlined(&self, request: &Request<'_>) {
        self.hardware.with_irqs_off(|irqs| {
            self.assert_here();
            self.flush_local(request, irqs);
        });
        self.hardware.event(Event::FlushLocalDone);
    }

    /// True if this CPU runs `space` and no other can hold what a flush takes away.
    #[inline(always)]
    fn is_alone_with(&self, space: &AddressSpace<H::Set>, needs: Needs) -> bool {
        let runs_here = self.presence() == Presence::running(space.id);
        // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. After the
        // revocation by the fence in `advance`.
        runs_here
            && !needs.any_of(Needs::GLOBAL)
            && !self.has_flag(flag::COUNTS)
            && space.cpus().holds_only(self.id, Ordering::Acquire)
    }

    /// Flushes `pages` adjoining translations of `space` everywhere, at once: for a change that frees nothing, such
    /// as a permission taken away. Whoever frees something uses [`TlbGather`](crate::TlbGather). Any range is safe to
    /// name: a long one goes as everything, and where there are no translations there is nothing to flush.
    ///
    /// # Panics
    /// As [`TlbGather::flush`](crate::TlbGather::flush).
    #[inline]
    pub fn flush_range(&self, space: &AddressSpace<H::Set>, va: VirtAddr, pages: u32, stride: Stride, why: Reason) {
        self.flush_range_with(space, va, pages, stride, Tables::Kept, why);
    }

    /// The same where page-table pages below the range may have been taken out. For a kernel that frees those pages by
    /// itself afterwards; [`TlbGather::unmap_table`](crate::TlbGather::unmap_table) keeps them until then. A range of
    /// no pages is one of one: with [`Tables::Freed`] the paths to what lies at `va` go.
    ///
    /// `stride` is that of the smallest translation in the range that has not been flushed, not of what a table maps as
    /// a whole: a directory entry that led to a table with live entries counts as 512 pages of 4 KiB. Named as one page
    /// of 2 MiB, 511 of them would stay.
    ///
    /// # Panics
    /// As [`TlbGather::flush`](crate::TlbGather::flush).
    #[inline(always)]
    pub fn flush_range_with(
        &self,
        space: &AddressSpace<H::Set>,
        va: VirtAddr,
        pages: u32,
        stride: Stride,
        tables: Tables,
        why: Reason,
    ) {
        let pages = pages.max(1); // invalidating one address reaches the cached path to a table above it (C-27)
        // Of which space it is, only a copy for others says: so a request that concerns this CPU alone is never put
        // together in memory.
        let mut request = self.request_here(va, pages, stride, tables.needs());
        let translations = Translations::OfSpace(space);
        if self.begin_flush(translations, &mut request).is_none() {
            let request = Request { space: space.id, token: space.token, ..request };
            return self.flush_with_responders(translations, &request, why);
        }
        self.with_irqs_off_here(|irqs| self.flush_loaded(|| space.generation(), &request, irqs));
        self.end_alone();
    }

    /// Flushes as [`flush_range`](Self::flush_range) does, with interrupts on or off and under any lock, if no other
    /// CPU must be told; it tells none and waits for none. For a space that this CPU alone uses, such as one through
    /// which it patches code. With [`Tables::Freed`] a CPU that holds the space lazily counts as one that must be told.
    ///
    /// # Errors
    /// If another CPU must be told: this one has flushed, and that one may still use what was revoked until a
    /// [`flush_range`](Self::flush_range) of it returns. A CPU that used the space before and is just between two
    /// others counts as one that must be told: it may be on its way to this space. A caller that knows that nobody else
    /// can switch to the space meanwhile may take this error for success.
    ///
    /// # Panics
    /// If called while this CPU waits for another flush.
    pub fn flush_range_alone(
        &self,
        space: &AddressSpace<H::Set>,
        va: VirtAddr,
        pages: u32,
        stride: Stride,
        tables: Tables,
    ) -> Result<(), OthersMustFlush> {
        let (pages, needs) = (pages.max(1), tables.needs());
        let mut request = Request { needs, ..self.request_of(space, va, pages, stride) };
        if self.announce(Translations::OfSpace(space), &mut request) == Others::None {
            return Ok(());
        }
        self.flush_here(&request);
        self.hardware.event(Event::FlushEnd);
        request.needs = needs; // whoever is only to leave the set need not be told
        if self.would_ask(space, &request) { Err(OthersMustFlush) } else { Ok(()) }
    }

    /// A range of a space, not announced yet; a long one is everything.
    #[inline(always)]
    fn request_of(&self, space: &AddressSpace<H::Set>, va: VirtAddr, pages: u32, stride: Stride) -> Request<'static> {
        let is_everything = self.is_everything(pages);
        Request {
            space: space.id,
            token: space.token,
            generation: Generation::NEVER,
            extent: if is_everything { Extent::Everything } else { Extent::Range { start: va, pages } },
            step: Step::of(stride),
            needs: Needs::NOTHING,
        }
    }
}

/// Whether page-table pages go with the translations of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tables {
    /// They stay.
    Kept,
    /// Some were taken out, and are freed after the flush: CPUs that hold the space lazily are asked as well (C-20),
    /// and when it returns none of them walks such a page.
    Freed,
}

impl Tables {
    #[inline(always)]
    const fn needs(self) -> Needs {
        match self {
            Self::Kept => Needs::NOTHING,
            Self::Freed => Needs::TABLES,
        }
    }
}

/// Other CPUs must flush before what was revoked is gone: what
/// [`flush_range_alone`](Cpu::flush_range_alone) may not ask of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OthersMustFlush;
