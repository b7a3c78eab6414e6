//! The shootdown, as the initiator runs it: announce, choose the responders, send them the request, flush here, wait.
//!
//! The page tables have been changed when it begins. When it returns, no CPU can use an old translation (INV-6). How
//! initiator and responder share a request is drawn at the head of `mod.rs`.

use core::slice;

use super::mailboxes::Responders;
use super::request::{Extent, Needs, Request};
use crate::addr::{CpuId, Stride, VirtAddr};
use crate::cpu::state::Presence;
use crate::cpu::{Cpu, flag};
use crate::hardware::{Event, Hardware, Tables};
use crate::policy::Reason;
use crate::policy::history::ENABLED;
use crate::space::cpu_set::{first_cpu, for_each_cpu, split};
use crate::space::{AddressSpace, Translations};
use crate::sync::{AtomicU64, Ordering, fence};

/// What announcing a flush has done of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All: no other CPU could hold what was flushed, or INVLPGB has reached them, and this CPU has flushed.
    Complete,
    /// [`flush_with_others`](Cpu::flush_with_others) comes next: other CPUs may have to flush, and this one has not
    /// yet.
    NeedsShootdown,
}

/// Flushes of a range.
impl<H: Hardware> Cpu<'_, '_, H> {
    /// Flushes `pages` adjoining translations of `space` everywhere, at once (Linux: `flush_tlb_mm_range`): for a
    /// change that frees nothing, such as a permission taken away. Use [`TlbGather`](crate::TlbGather) to free
    /// something. Any range is safe to name: a long one is a flush of everything, and where there are no translations
    /// there is nothing to flush.
    ///
    /// # Panics
    /// As [`TlbGather::flush`](crate::TlbGather::flush).
    #[inline]
    pub fn flush_range(&self, space: &AddressSpace<H::Set>, va: VirtAddr, pages: u32, stride: Stride, why: Reason) {
        self.flush_range_with(space, va, pages, stride, Tables::Kept, why);
    }

    /// [`flush_range`](Self::flush_range) for a kernel that has taken out page-table pages and frees them itself
    /// afterwards. [`TlbGather::unmap_table`](crate::TlbGather::unmap_table) keeps them until then. A range of
    /// no pages counts as one page: with [`Tables::Freed`] the cached paths to what lies at `va` are flushed.
    ///
    /// `stride` is that of the smallest translation in the range that has not been flushed, not of what a page table
    /// maps as a whole: a directory entry that led to a table with live entries counts as 512 pages of 4 KiB. If it
    /// were named as one page of 2 MiB, 511 of them would stay.
    ///
    /// # Panics
    /// As [`TlbGather::flush`](crate::TlbGather::flush).
    pub fn flush_range_with(
        &self,
        space: &AddressSpace<H::Set>,
        va: VirtAddr,
        pages: u32,
        stride: Stride,
        tables: Tables,
        why: Reason,
    ) {
        let mut request = self.request_for_range(space, va, pages, stride, tables);
        if self.announce(Translations::OfSpace(space), &mut request) == Outcome::NeedsShootdown {
            // Only other CPUs need to know which space it is, so a flush of this CPU alone does not read that.
            self.flush_with_others(Translations::OfSpace(space), &request.in_space(space), why);
        }
    }

    /// Flushes as [`flush_range`](Self::flush_range) does, with interrupts on or off and under any lock, if no other
    /// CPU has to flush; it sends no IPI and waits for nobody. For a space that only this CPU uses, such as one through
    /// which it patches code. With [`Tables::Freed`] a CPU that holds the space in lazy TLB mode counts as one that has
    /// to flush.
    ///
    /// # Errors
    /// If another CPU has to flush: this one has flushed, and the other may use what was taken away until a
    /// [`flush_range`](Self::flush_range) of it returns. A CPU that used the space before and is in the middle of a
    /// switch counts as one that has to flush: it may be on its way to this space. If no other CPU can have
    /// the space loaded or be switching to it, the error can be ignored.
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
        let mut request = self.request_for_range(space, va, pages, stride, tables).in_space(space);
        if self.announce(Translations::OfSpace(space), &mut request) == Outcome::Complete {
            return Ok(());
        }
        self.flush_here(&request);
        self.hardware.event(Event::FlushEnd);
        request.needs = tables.needs(); // without TRIM: a CPU that would only leave the CPU set does not count
        let has_responder = space.cpus().words().iter().enumerate().any(|(index, word)| {
            self.choose_among_many(Translations::OfSpace(space), index, self.others(index, word), &request) != 0
        });
        if has_responder { Err(OthersMustFlush) } else { Ok(()) }
    }

    #[inline(always)]
    fn request_for_range(
        &self,
        space: &AddressSpace<H::Set>,
        va: VirtAddr,
        pages: u32,
        stride: Stride,
        tables: Tables,
    ) -> Request<'static> {
        // Invalidating one address reaches the cached path to a table above it (C-27).
        let request = self.request_for(va, pages.max(1), stride, tables.needs());
        // INVLPGB compares no generation, so it would leave what a batch owes: `owed.rs`.
        let is_owed = self.has_broadcast() && self.tlb.owed.is_owed(space.id);
        if is_owed { Request { extent: Extent::Everything, ..request } } else { request }
    }
}

impl<'k, H: Hardware> Cpu<'_, 'k, H> {
    /// Takes away, on every CPU, the translations that `request` names.
    ///
    /// When it returns, no CPU can use one of them (INV-6). A CPU that ran the space has flushed. Any other CPU finds
    /// the new generation before its next program of that space runs, and flushes then; until that time its TLB may
    /// still hold them. (Of a space with a PCID that all CPUs share, no TLB holds them: INVLPGB has flushed every CPU,
    /// and no generation is compared.) With [`Needs::TABLES`] no CPU walks the old page tables any more, in lazy TLB
    /// mode or not.
    /// Before it returns nothing is promised: other CPUs go on using what they hold, so nothing may be freed yet.
    ///
    /// Interrupts are on, and preemption is off. Other CPUs' requests are answered during the wait.
    pub(crate) fn shootdown(&self, whose: Translations<'_, H::Set>, mut request: Request<'_>, reason: Reason) {
        if self.announce(whose, &mut request) == Outcome::NeedsShootdown {
            self.flush_with_others(whose, &request, reason);
        }
    }

    /// 1. Announces a flush: from here on a CPU that joins the space flushes by itself. If no other CPU can hold what
    ///    is flushed, this one flushes, and that is all.
    #[inline(always)]
    pub(crate) fn announce(&self, whose: Translations<'_, H::Set>, request: &mut Request<'_>) -> Outcome {
        self.assert_here();
        self.assert_not_in_a_flush();
        self.hardware.event(Event::FlushBegin(self.pages_of(request)));
        let Translations::OfSpace(space) = whose else {
            // SeqCst: the PTE change comes before the online CPUs are read; partner is the fence in `bring_up`.
            fence(Ordering::SeqCst);
            return if self.has_broadcast() { self.announce_by_broadcast(request) } else { Outcome::NeedsShootdown };
        };
        let stamp = space.advance();
        request.generation = self.generation_in(stamp);
        if self.has_broadcast() && self.broadcast(stamp, request) == Outcome::Complete {
            return Outcome::Complete;
        }
        if self.tlb.is_trim_due(request.generation, request.needs) {
            request.needs = request.needs.with(Needs::TRIM);
        }
        // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. It is read
        // after the PTE change, by the fence in `advance`. A policy that counts its flushes counts them further down.
        let is_alone = self.presence() == Presence::running(space.id)
            && !request.needs(Needs::GLOBAL)
            && !self.has_flag(flag::ACCOUNTING)
            && space.cpus().holds_only(self.id, Ordering::Acquire);
        if !is_alone {
            return Outcome::NeedsShootdown;
        }
        self.with_irqs_off_here(
            #[inline(always)]
            |irqs| self.flush_running(|| space.stamp(), request, irqs),
        );
        self.hardware.event(Event::FlushLocalDone);
        self.hardware.event(Event::FlushEnd);
        Outcome::Complete
    }

    /// The rest of a flush that was announced, where other CPUs may hold what is flushed.
    ///
    /// # Panics
    /// If another CPU has to flush and interrupts are off (INV-7).
    pub(crate) fn flush_with_others(&self, whose: Translations<'_, H::Set>, request: &Request<'_>, reason: Reason) {
        // From here until it is 0 again an interrupt handler that flushes would use the same mailbox.
        self.state.is_in_a_flush.set(1);
        let (mailbox, responders) = if self.state.issued.get() == 0 {
            (0, self.send_and_flush_here(0, whose, request, reason))
        } else {
            // Issued requests are outstanding, so the first mailbox may not be free.
            let mailbox = self.find_free_mailbox().unwrap_or_else(|| self.wait_for_mailbox());
            (mailbox, self.send_by_any_mailbox(mailbox, whose, request, reason))
        };
        if !responders.words.is_empty() {
            self.assert_may_wait();
            self.wait(mailbox, &responders);
            self.assert_here();
        }
        self.state.is_in_a_flush.set(0);
        self.hardware.event(Event::FlushEnd);
        if self.has_broadcast() {
            self.share_if_due(whose, request, responders.count);
        }
    }

    /// [`send_and_flush_here`](Self::send_and_flush_here), out of line.
    #[inline(never)]
    pub(crate) fn send_by_any_mailbox(
        &self,
        mailbox: usize,
        whose: Translations<'_, H::Set>,
        request: &Request<'_>,
        reason: Reason,
    ) -> Responders<'k> {
        self.send_and_flush_here(mailbox, whose, request, reason)
    }

    /// 2 and 3. Sends the request to the CPUs that have to flush, and flushes here: while they do, or before.
    #[inline(always)]
    fn send_and_flush_here(
        &self,
        mailbox: usize,
        whose: Translations<'_, H::Set>,
        request: &Request<'_>,
        reason: Reason,
    ) -> Responders<'k> {
        let began = self.clock();
        if self.has_flag(flag::LOCAL_FIRST) {
            self.flush_here(request);
        }
        let responders = self.send_requests(mailbox, whose, request);
        if !self.has_flag(flag::LOCAL_FIRST) {
            self.flush_here(request);
        }
        self.count(request, reason, responders.count, began);
        responders
    }

    /// 2. Chooses the responders, all of them first; then sends each a hint, and an IPI unless one is on its way.
    #[inline(always)]
    fn send_requests(&self, mailbox: usize, whose: Translations<'_, H::Set>, request: &Request<'_>) -> Responders<'k> {
        let candidates = match whose {
            Translations::OfSpace(space) if !request.needs(Needs::GLOBAL) => space.cpus(),
            // A global entry belongs to no PCID: every CPU that ever ran the space may hold it.
            _ => self.tlb.online(),
        };
        match candidates.words() {
            // Up to 64 CPUs: this one is in that word, too.
            [word] => {
                let others = self.others(split(self.id).0, word);
                let all = self.choose(whose, 0, others, request);
                let chosen = self.spare(0, all, request);
                self.report(others & !all, chosen);
                if chosen == 0 {
                    return Responders { words: &[], start: 0, count: 0 };
                }
                let outbox = self.tlb.matrix.outbox_word(self.id, mailbox, 0);
                self.post(mailbox, request);
                // Release: as in `send_to_many`.
                outbox.store(chosen, Ordering::Release);
                let count = if ENABLED || self.has_broadcast() { chosen.count_ones() } else { 0 };
                let responders = Responders { words: slice::from_ref(outbox), start: 0, count };
                if chosen | split(self.id).1 == self.tlb.matrix.last_word && self.tlb.cpus.len() > 2 {
                    self.interrupt_all();
                } else {
                    self.interrupt(&responders);
                }
                responders
            }
            words => {
                let (start, end, count) = self.send_to_many(words, mailbox, whose, request);
                let outbox = self.tlb.matrix.outbox(self.id, mailbox).words();
                Responders { words: &outbox[start as usize..end as usize], start: start as usize, count }
            }
        }
    }

    /// [`send_requests`](Self::send_requests) for a set of several words. Returns where those words of the outbox begin
    /// and end that name responders, and how many responders they name. As one loop the two would cost 90 instructions
    /// more.
    fn send_to_many(
        &self,
        candidates: &[AtomicU64],
        mailbox: usize,
        whose: Translations<'_, H::Set>,
        request: &Request<'_>,
    ) -> (u32, u32, u32) {
        let outbox = self.tlb.matrix.outbox(self.id, mailbox).words();
        let (mut start, mut end, mut count) = (0, 0, 0);
        for (index, word) in candidates.iter().enumerate() {
            let others = self.others(index, word);
            let all = self.choose_among_many(whose, index, others, request);
            let chosen = self.spare(index, all, request);
            self.report(others & !all, chosen);
            if chosen == 0 {
                continue;
            }
            // The request is in the mailbox before the first bit of the outbox leads a responder there.
            if count == 0 {
                self.post(mailbox, request);
                start = index;
            }
            // Release: the mailbox is complete; partner is the Acquire load of the outbox in `answer_mailbox`.
            outbox[index].store(chosen, Ordering::Release);
            end = index + 1;
            count += chosen.count_ones();
        }
        let responders = Responders { words: &outbox[start..end], start, count };
        if count as usize + 1 == self.tlb.cpus.len() {
            self.interrupt_all();
        } else {
            self.interrupt(&responders);
        }
        (start as u32, end as u32, count)
    }

    /// Writes `request` into a free mailbox of this CPU; who else is a responder is left out.
    #[inline(always)]
    fn post(&self, mailbox: usize, request: &Request<'_>) {
        if self.has_directories() && matches!(request.extent, Extent::Within(_)) {
            return self.post_within(mailbox, request);
        }
        self.own_mailbox(mailbox).post(request, self.mailboxes_in_use());
    }

    fn report(&self, skipped: u64, chosen: u64) {
        self.hardware.event(Event::Chosen { asked: chosen.count_ones(), skipped: skipped.count_ones() });
    }

    /// The members of `word`, the one at `index` of a CPU set, but this CPU.
    fn others(&self, index: usize, word: &AtomicU64) -> u64 {
        let (own_word, own_bit) = split(self.id);
        // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. It is read
        // after the PTE change, by the fence in `advance` (or in `announce`, for kernel addresses).
        word.load(Ordering::Acquire) & if index == own_word { !own_bit } else { !0 }
    }

    /// Those of `others`, CPUs of the word at `index`, that have to flush before the shootdown returns.
    ///
    /// A CPU that runs the space has to, and one in the middle of a switch: it may have read the old generation
    /// (INV-2). A CPU in lazy TLB mode does not: it finds the new generation before it runs the space again (INV-5).
    /// But it walks the page tables meanwhile, so it does when page-table pages are freed; and some policies interrupt
    /// it all the same.
    #[inline(always)]
    pub(super) fn choose(
        &self,
        whose: Translations<'_, H::Set>,
        index: usize,
        others: u64,
        request: &Request<'_>,
    ) -> u64 {
        let (space, needs) = (request.space, request.needs);
        if self.has_directories() && needs.any_of(Needs::WITHIN) {
            self.choose_within(whose, index, others, request)
        } else if matches!(whose, Translations::OfKernel) || needs.any_of(Needs::WIDENS_RESPONDERS) {
            self.choose_widely(index, others, request)
        } else if needs.any_of(Needs::TABLES) || self.has_flag(flag::LAZY_INTERRUPTED) {
            self.choose_by(index, others, |seen| seen.may_hold(space))
        } else {
            self.choose_by(index, others, |seen| seen.may_run(space))
        }
    }

    /// [`choose`](Self::choose), out of line.
    #[inline(never)]
    fn choose_among_many(
        &self,
        whose: Translations<'_, H::Set>,
        index: usize,
        others: u64,
        request: &Request<'_>,
    ) -> u64 {
        self.choose(whose, index, others, request)
    }

    /// [`choose`](Self::choose) where CPUs may have to flush that do not use the space, or where there is no space: for
    /// kernel addresses and for batches. A CPU that is absent answers nobody, and flushes everything when it comes
    /// online.
    fn choose_widely(&self, index: usize, others: u64, request: &Request<'_>) -> u64 {
        let Extent::Loaded(targets) = request.extent else {
            return self.choose_by(index, others, |seen| !seen.is_absent());
        };
        // What a CPU in lazy TLB mode holds matters only when page-table pages are freed, whatever the policy.
        let has_loaded = |seen: Presence| seen == Presence::SWITCHING || targets.has_space(seen.space());
        let others = others & targets.word(index);
        if request.needs(Needs::TABLES) {
            let holds = |seen: Presence| seen != Presence::KERNEL && !seen.is_absent() && has_loaded(seen);
            self.choose_by(index, others, holds)
        } else {
            self.choose_by(index, others, |seen| !seen.is_lazy() && has_loaded(seen))
        }
    }

    #[inline(always)]
    fn choose_by(&self, index: usize, mut left: u64, must_flush: impl Fn(Presence) -> bool) -> u64 {
        let (cpus, mut chosen) = (self.tlb.cpus, 0);
        loop {
            // The CPUs that are left alone have a loop to themselves: there are often many, and a compiler that sees
            // one loop computes for each of them what only a responder needs.
            let responder = loop {
                if left == 0 {
                    return chosen;
                }
                let cpu = first_cpu(index, left);
                // Acquire: partner is the Release that ends a switch, enters lazy TLB mode or goes offline: what that
                // CPU did is over.
                let seen = Presence(cpus[cpu.0 as usize].presence.load(Ordering::Acquire));
                if must_flush(seen) {
                    break cpu;
                }
                left &= left - 1;
            };
            chosen |= split(responder).1; // by its number: setting a bit is one instruction then
            left &= left - 1;
        }
    }

    /// Leaves a hint with each responder, and sends it an IPI unless one is on its way.
    #[inline(always)]
    fn interrupt(&self, responders: &Responders<'_>) {
        for (word, index) in responders.words.iter().zip(responders.start..) {
            // Relaxed: this CPU wrote it. A responder whose bit is clear by now has answered while it handled another
            // hint of this CPU.
            for_each_cpu(index, word.load(Ordering::Relaxed), |cpu| {
                if self.tlb.matrix.inbox(cpu).leave_hint(self.id) {
                    self.hardware.send_ipi(cpu);
                }
            });
        }
    }

    /// [`interrupt`](Self::interrupt) where every other CPU is a responder; none is offline then. One IPI goes to all,
    /// unless one of them is found to have an IPI on its way; where many CPUs flush at once, most of them do. What is
    /// looked at is the word in which this CPU leaves its hint, and in a larger inbox the word of the top level that
    /// names it.
    ///
    /// The CPUs that were passed over get an IPI after all when a busy one is found, as others rely on it by then:
    ///
    /// ```text
    ///   this CPU                                       another initiator
    ///   leaves the first hint with cpu2
    ///                                                  finds it there, so it sends no IPI to cpu2
    ///   finds that cpu3 has an IPI on its way
    ///   sends an IPI to cpu2
    ///                                                  waits for the answer of cpu2
    /// ```
    /// So it does not look at the outbox either, where the bit of cpu2 may have been cleared by now. A hint without a
    /// bit does no harm.
    fn interrupt_all(&self) {
        let others = (0..self.tlb.cpus.len() as u32).map(CpuId).filter(|&cpu| cpu != self.id);
        let leave_hint = |cpu| self.tlb.matrix.inbox(cpu).leave_hint(self.id);
        let Some(busy) = others.clone().find(|&cpu| !leave_hint(cpu)) else {
            return self.hardware.send_ipi_to_others();
        };
        others.filter(|&cpu| cpu < busy || cpu > busy && leave_hint(cpu)).for_each(|cpu| self.hardware.send_ipi(cpu));
    }

    /// 3. Flushes on this CPU what `request` names, as a responder would.
    #[inline(always)]
    pub(crate) fn flush_here(&self, request: &Request<'_>) {
        self.with_irqs_off_here(
            #[inline(always)]
            |irqs| self.flush_local(request, irqs),
        );
        self.hardware.event(Event::FlushLocalDone);
    }
}

impl Tables {
    const fn needs(self) -> Needs {
        match self {
            Self::Kept => Needs::NOTHING,
            Self::Freed => Needs::TABLES,
        }
    }
}

/// Other CPUs have to flush, to which [`flush_range_alone`](Cpu::flush_range_alone) may not send an IPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OthersMustFlush;
