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
//! `ring.rs`.

use core::ops::Range;

use crate::addr::{CpuId, Stride, VirtAddr};
use crate::address_space::{AddressSpace, Generation, Translations};
use crate::cpu_set::{AtomicCpuSet, each_cpu, first_cpu, split};
use crate::cpu_state::{CpuState, Presence};
use crate::hardware::{Event, Hardware};
use crate::policy::{Lazy, LocalFlush};
use crate::reason::Reason;
use crate::request::{Extent, Needs, Request};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::tlb::{Cpu, flag};
use crate::union::Union;

/// Which CPUs a request must reach, as far as the request alone decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Those that run the space, or are on their way from one space to another.
    Running,
    /// Those that hold it lazily as well.
    Lazy,
    /// All that are there.
    Present,
}

/// Whether a flush that was announced has anybody to ask.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// No other CPU holds what goes; this one has flushed.
    None,
    /// Others may; nothing has been flushed yet.
    Perhaps,
}

/// What comes when all CPUs have been asked.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Waits for them.
    Wait,
    /// Returns. They are asked by this mailbox, which is free.
    Return(usize),
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
        if self.announce(translations, &mut request) == Others::Perhaps {
            self.flush_with_responders(translations, &request, reason, Then::Wait);
        }
    }

    /// Announces a flush, and ends it if no other CPU can hold what goes.
    #[inline(always)]
    pub(crate) fn announce(&self, translations: Translations<'_, H::Set>, request: &mut Request<'_>) -> Others {
        self.assert_here();
        self.assert_not_inside_another();
        self.hardware.event(Event::FlushBegin(request.pages().unwrap_or(u32::MAX)));
        match translations {
            // Whoever joins the space from here on finds the new generation, and flushes by itself (INV-2).
            Translations::OfSpace(space) => {
                request.generation = space.advance();
                if self.tlb.is_trim_due(request.generation, request.needs) {
                    request.needs = request.needs.and(Needs::TRIM);
                }
                // The common case, a program on one CPU: it asks nobody.
                if self.is_alone_with(space, request.needs) {
                    self.hardware.with_irqs_off(|irqs| self.flush_loaded(space, request, irqs));
                    self.hardware.event(Event::FlushLocalDone);
                    self.hardware.event(Event::FlushEnd);
                    return Others::None;
                }
            }
            // SeqCst: the PTE change comes before the online CPUs are read; partner is the fence in `bring_up`.
            Translations::OfKernel => fence(Ordering::SeqCst),
        }
        Others::Perhaps
    }

    /// The rest of a flush that has been announced, where other CPUs may hold what goes. Returns the words of the
    /// outbox in which those stand that were asked; with [`Then::Wait`] they have answered.
    #[inline(never)]
    pub(crate) fn flush_with_responders(
        &self,
        translations: Translations<'_, H::Set>,
        request: &Request<'_>,
        reason: Reason,
        then: Then,
    ) -> Range<usize> {
        let slot = self.begin_asking(then);
        let (began, is_local_first) = (self.clock(), self.tlb.policy().local_flush == LocalFlush::BeforeRemote);
        if is_local_first {
            self.flush_here(request);
        }
        // 1. Choose the responders among the CPUs that may hold the translations.
        let candidates = match translations {
            Translations::OfSpace(space) if !request.needs(Needs::GLOBAL) => space.cpus(),
            // A global entry belongs to no tag: whoever has ever run the space may hold it.
            _ => self.tlb.online(),
        };
        let (outbox, (own_word, own_bit)) = (self.tlb.matrix.outbox(self.id, slot), split(self.id));
        let (mut responders, mut asked) = (0, 0..0);
        for (index, word) in candidates.words().iter().enumerate() {
            // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. It is
            // read after the revocation, by the fence in `advance` (or in `shootdown`, for the kernel).
            let others = word.load(Ordering::Acquire) & if index == own_word { !own_bit } else { !0 };
            let chosen = if others == 0 { 0 } else { self.choose_responders(index, others, request) };
            self.hardware.event(Event::Chosen { asked: chosen.count_ones(), skipped: (others & !chosen).count_ones() });
            if chosen == 0 {
                continue;
            }
            // 2. Post the request: in the mailbox, before the first bit of the outbox leads anybody there.
            if responders == 0 {
                self.post(slot, request);
                asked.start = index;
            }
            // Release: the mailbox is whole; partner is the Acquire of the outbox in `answer`.
            outbox.words()[index].store(chosen, Ordering::Release);
            asked.end = index + 1;
            responders += chosen.count_ones();
        }
        // 3. Interrupt them.
        if responders != 0 {
            self.interrupt(outbox, responders, asked.clone());
        }
        // 4. Flush here, while they work.
        if !is_local_first {
            self.flush_here(request);
        }
        self.count(request, reason, responders, began);
        // 5. Wait for them, or leave that to whoever waits later.
        let is_left = responders != 0 && matches!(then, Then::Return(_));
        if is_left {
            self.note_issued(slot);
        } else if responders != 0 {
            self.wait(slot, asked.clone());
        }
        self.state.is_waiting.set(0);
        self.hardware.event(if is_left { Event::FlushIssued } else { Event::FlushEnd });
        asked
    }

    /// The mailbox to ask with. From here until `is_waiting` is 0 again a handler that flushes would take the same one.
    #[inline(always)]
    fn begin_asking(&self, then: Then) -> usize {
        self.state.is_waiting.set(1);
        match then {
            Then::Wait => self.free_slot().unwrap_or_else(|| self.wait_for_slot()),
            Then::Return(slot) => slot,
        }
    }

    pub(crate) fn flush_here(&self, request: &Request<'_>) {
        self.hardware.with_irqs_off(|irqs| self.flush_local(request, irqs));
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

    /// Those of `bits`, the word at `index` of a set of CPUs, that must be asked.
    #[inline(never)]
    fn choose_responders(&self, index: usize, bits: u64, request: &Request<'_>) -> u64 {
        // First and whole, so that others pay two instructions for it.
        if let Extent::Loaded(union) = request.extent {
            return self.choose_of_union(index, bits, union, request.needs);
        }
        let (reach, cpus) = (self.reach(request), &self.tlb.cpus[first_cpu(index, 1).0 as usize..]);
        let mut chosen = 0;
        each_cpu(0, bits, |CpuId(n)| {
            if should_flush_cpu(&cpus[n as usize], request, reach) {
                chosen |= 1 << n;
            }
        });
        chosen
    }

    /// The same for a batch: those that run one of its spaces, or are on their way from one space to another. If tables
    /// are freed, those that hold one lazily as well.
    #[inline(never)]
    fn choose_of_union(&self, index: usize, bits: u64, union: &Union, needs: Needs) -> u64 {
        let mut chosen = 0;
        each_cpu(0, bits & union.word(index), |CpuId(n)| {
            let cpu = &self.tlb.cpus[first_cpu(index, 1 << n).0 as usize];
            // Acquire: as in `should_flush_cpu`.
            let seen = Presence(cpu.presence.load(Ordering::Acquire));
            let is_asked = match seen {
                Presence::SWITCHING => true,
                Presence::ABSENT | Presence::KERNEL => false,
                _ => union.has_space(seen.space()) && (!seen.is_lazy() || needs.any_of(Needs::TABLES)),
            };
            chosen |= u64::from(is_asked) << n;
        });
        chosen
    }

    /// INV-5: lazy CPUs are left alone, unless page tables are freed or the policy knows no other way.
    #[inline(always)]
    fn reach(&self, request: &Request<'_>) -> Reach {
        if request.space.0 == 0 || request.needs(Needs::GLOBAL.and(Needs::TRIM).and(Needs::EVERYONE)) {
            Reach::Present
        } else if request.needs(Needs::TABLES) || self.tlb.policy().lazy != Lazy::SkipUnlessTablesFreed {
            Reach::Lazy
        } else {
            Reach::Running
        }
    }

    /// Leaves a hint with each CPU that is named in `asked`, words of `outbox`, and interrupts it. One interrupt goes
    /// to all if every other CPU is asked: none is off line then.
    #[inline(never)]
    fn interrupt(&self, outbox: AtomicCpuSet<'_>, responders: u32, asked: Range<usize>) {
        let is_all = responders > 1 && responders as usize + 1 == self.tlb.cpus.len();
        for (index, word) in outbox.words_at(asked) {
            // Relaxed: this CPU wrote it. A responder clears its bit before it finds the hint below only if it looked
            // here for the sake of another mailbox's: it needs no hint then.
            each_cpu(index, word.load(Ordering::Relaxed), |cpu| {
                if self.tlb.matrix.inbox(cpu).leave_hint(self.id) && !is_all {
                    self.hardware.send_ipi(cpu);
                }
            });
        }
        if is_all {
            self.hardware.send_ipi_to_others();
        }
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
    /// itself afterwards; [`TlbGather::unmap_table`](crate::TlbGather::unmap_table) keeps them until then.
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
        let needs = if tables == Tables::Freed { Needs::TABLES } else { Needs::NOTHING };
        let request = Request { needs, ..self.request_of(space, va, pages, stride) };
        self.shootdown(Translations::OfSpace(space), request, why);
    }

    /// Flushes as [`flush_range`](Self::flush_range) does, with interrupts on or off and under any lock, if no other
    /// CPU must be told; it tells none and waits for none. For a space that this CPU alone uses, such as one through
    /// which it patches code.
    ///
    /// # Errors
    /// If another CPU must be told: this one has flushed, and that one may still use what was revoked until a
    /// [`flush_range`](Self::flush_range) of it returns.
    ///
    /// # Panics
    /// If called while this CPU waits for another flush.
    pub fn flush_range_alone(
        &self,
        space: &AddressSpace<H::Set>,
        va: VirtAddr,
        pages: u32,
        stride: Stride,
    ) -> Result<(), OthersMustFlush> {
        let mut request = self.request_of(space, va, pages, stride);
        if self.announce(Translations::OfSpace(space), &mut request) == Others::None {
            return Ok(());
        }
        self.flush_here(&request);
        self.hardware.event(Event::FlushEnd);
        request.needs = Needs::NOTHING; // whoever is only to leave the set need not be told
        let (own_word, own_bit) = split(self.id);
        let is_told = |(index, word): (usize, &AtomicU64)| {
            // Acquire: as in `flush_with_responders`: read after the revocation, by the fence in `advance`.
            let others = word.load(Ordering::Acquire) & if index == own_word { !own_bit } else { !0 };
            others != 0 && self.choose_responders(index, others, &request) != 0
        };
        if space.cpus().words().iter().enumerate().any(is_told) { Err(OthersMustFlush) } else { Ok(()) }
    }

    /// A range of a space, not announced yet; a long one is everything.
    #[inline(always)]
    fn request_of(&self, space: &AddressSpace<H::Set>, va: VirtAddr, pages: u32, stride: Stride) -> Request<'static> {
        let is_everything = self.tlb.knobs().is_everything(&self.tlb.policy().range, u64::from(pages), u64::MAX);
        Request {
            space: space.id,
            token: space.token,
            generation: Generation::NEVER,
            extent: if is_everything { Extent::Everything } else { Extent::Range { start: va, pages } },
            stride,
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

/// Other CPUs must flush before what was revoked is gone: what
/// [`flush_range_alone`](Cpu::flush_range_alone) may not ask of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OthersMustFlush;

/// True if `cpu` must flush before the shootdown returns. INV-2, the initiator's side: a CPU in the middle of a
/// switch must, since it may have read the old generation. One that runs something else, or holds the space lazily,
/// need not: it will find the new generation before it uses the space.
#[inline(always)]
fn should_flush_cpu(cpu: &CpuState, request: &Request<'_>, reach: Reach) -> bool {
    // Acquire: partner is the Release that ends a switch, begins lazy mode or leaves: what that CPU did is over.
    let seen = Presence(cpu.presence.load(Ordering::Acquire));
    if reach == Reach::Running && seen.is_lazy() {
        return false;
    }
    if seen == Presence::running(request.space) || seen == Presence::SWITCHING {
        return true;
    }
    match reach {
        Reach::Running => false,
        Reach::Lazy => seen == Presence::lazy(request.space),
        // One that is absent answers nobody, and flushes everything when it returns.
        Reach::Present => seen != Presence::ABSENT,
    }
}
