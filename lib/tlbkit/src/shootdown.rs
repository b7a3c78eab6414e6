//! The shootdown: how one CPU, the initiator, takes translations away from all of them. Those that it asks for help are
//! its responders; what they do is in `answer.rs`.
//!
//! What is asked lies in the initiator's mailbox. Of whom, says its outbox, one bit a responder: that is the truth. The
//! responder's inbox, one bit an initiator, is only a hint where to look:
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
//! finds nothing does no harm (C-56, C-63).

use core::ops::Range;

use crate::addr::{CpuId, Stride, VirtAddr};
use crate::address_space::{AddressSpace, Destroyed, Generation, Translations};
use crate::cpu_set::{each_cpu, first_cpu, split};
use crate::cpu_state::{CpuState, Presence};
use crate::hardware::{Event, Hardware};
use crate::policy::{Lazy, LocalFlush};
use crate::reason::Reason;
use crate::request::{Extent, Needs, Request};
use crate::sync::{Ordering, fence};
use crate::tlb::{Cpu, flag};

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

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Takes away, on every CPU, the translations that `request` names. The page tables have been changed before.
    ///
    /// When it returns, no CPU can use one of them (INV-6). A CPU that ran the space has flushed. Any other finds the
    /// new generation before its next program of that space runs, and flushes then; until that time its TLB may still
    /// hold them. With [`Needs::TABLES`] no CPU walks the old page tables any more, lazily or not. Before it returns
    /// nothing is promised: the other CPUs go on using what they hold, so nothing may be freed yet.
    #[inline(never)]
    pub(crate) fn shootdown(&self, translations: Translations<'_, '_>, mut request: Request<'_>, reason: Reason) {
        assert!(self.state.is_waiting.get() == 0, "a flush inside the wait of another: flushes are not for interrupts");
        self.hardware.event(Event::FlushBegin(request.pages().unwrap_or(u32::MAX)));
        // Announce it: whoever joins the space from here on finds the new generation, and flushes by itself (INV-2).
        match translations {
            Translations::OfSpace(space) => {
                request.generation = space.advance();
                if self.tlb.is_trim_due(request.generation, request.needs) {
                    request.needs = request.needs.and(Needs::TRIM);
                }
                // The common case, a program on one CPU: it asks nobody.
                if self.is_alone_with(space, request.needs) {
                    self.hardware.with_irqs_off(|irqs| self.flush_loaded(space, &request, irqs));
                    self.hardware.event(Event::FlushLocalDone);
                    return self.hardware.event(Event::FlushEnd);
                }
            }
            // SeqCst: the PTE change comes before the online CPUs are read; partner is the fence in `bring_up`.
            Translations::OfKernel => fence(Ordering::SeqCst),
        }
        self.flush_with_responders(translations, &request, reason);
    }

    /// The rest of a [`shootdown`](Self::shootdown) that has been announced, where other CPUs may hold what goes.
    #[inline(never)]
    fn flush_with_responders(&self, translations: Translations<'_, '_>, request: &Request<'_>, reason: Reason) {
        let (began, is_local_first) = (self.clock(), self.tlb.policy().local_flush == LocalFlush::BeforeRemote);
        if is_local_first {
            self.flush_here(request);
        }
        // 1. Choose the responders among the CPUs that may hold the translations.
        let candidates = match translations {
            Translations::OfSpace(space) if !request.needs(Needs::GLOBAL) => space.cpus,
            // A global entry belongs to no tag: whoever has ever run the space may hold it.
            _ => self.tlb.online(),
        };
        let (outbox, (own_word, own_bit)) = (self.tlb.matrix.outbox(self.id).words(), split(self.id));
        let (mut responders, mut asked) = (0, 0..0);
        for (index, word) in candidates.words().iter().enumerate() {
            // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. It is
            // read after the revocation, by the fence in `advance` (or in `shootdown`, for the kernel).
            let others = word.load(Ordering::Acquire) & if index == own_word { !own_bit } else { !0 };
            let chosen = if others == 0 { 0 } else { self.choose_responders(index, others, request) };
            if chosen == 0 {
                continue;
            }
            // 2. Post the request: in the mailbox, before the first bit of the outbox leads anybody there.
            if responders == 0 {
                self.state.mailbox.post(request);
                self.state.is_waiting.set(1);
                asked.start = index;
            }
            // Release: the mailbox is whole; partner is the Acquire of the outbox in `answer`.
            outbox[index].store(chosen, Ordering::Release);
            asked.end = index + 1;
            responders += chosen.count_ones();
        }
        // 3. Interrupt them.
        if responders != 0 {
            self.interrupt(responders, asked.clone());
        }
        // 4. Flush here, while they work.
        if !is_local_first {
            self.flush_here(request);
        }
        self.count(request, reason, responders, began);
        // 5. Wait for them.
        if responders != 0 {
            self.wait(asked);
        }
        self.hardware.event(Event::FlushEnd);
    }

    fn flush_here(&self, request: &Request<'_>) {
        self.hardware.with_irqs_off(|irqs| self.flush_local(request, irqs));
        self.hardware.event(Event::FlushLocalDone);
    }

    /// True if this CPU runs `space` and no other can hold what a flush takes away.
    #[inline(always)]
    fn is_alone_with(&self, space: &AddressSpace<'_>, needs: Needs) -> bool {
        let runs_here = self.presence() == Presence::running(space.id);
        // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. After the
        // revocation by the fence in `advance`.
        runs_here
            && !needs.any_of(Needs::GLOBAL)
            && !self.has_flag(flag::COUNTS)
            && space.cpus.holds_only(self.id, Ordering::Acquire)
    }

    /// Those of `bits`, the word at `index` of a set of CPUs, that must be asked.
    #[inline(never)]
    fn choose_responders(&self, index: usize, bits: u64, request: &Request<'_>) -> u64 {
        let (reach, cpus) = (self.reach(request), &self.tlb.cpus[first_cpu(index, 1).0 as usize..]);
        let mut chosen = 0;
        each_cpu(0, bits, |CpuId(n)| {
            if should_flush_cpu(&cpus[n as usize], request, reach) {
                chosen |= 1 << n;
            }
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

    /// Leaves a hint with each CPU that is named in `asked`, words of the outbox, and interrupts it. One interrupt goes
    /// to all if every other CPU is asked: none is off line then.
    #[inline(never)]
    fn interrupt(&self, responders: u32, asked: Range<usize>) {
        let is_all = responders > 1 && responders as usize + 1 == self.tlb.cpus.len();
        for (index, word) in self.tlb.matrix.outbox(self.id).words_at(asked) {
            // Relaxed: this CPU wrote it, and no responder clears its bit before it finds the hint below.
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
    pub fn flush_range(&self, space: &AddressSpace<'_>, va: VirtAddr, pages: u32, stride: Stride, why: Reason) {
        let is_everything = self.tlb.knobs().is_everything(&self.tlb.policy().range, u64::from(pages), u64::MAX);
        let request = Request {
            space: space.id,
            token: space.token,
            generation: Generation::NEVER,
            extent: if is_everything { Extent::Everything } else { Extent::Range { start: va, pages } },
            stride,
            needs: Needs::NOTHING,
        };
        self.shootdown(Translations::OfSpace(space), request, why);
    }

    /// Ends `space`: no task runs it any more. When it returns [`Destroyed::Now`] no CPU has it loaded or touches
    /// it, and everything can be freed; it must be called by a CPU that is not running it, or holds it lazily.
    ///
    /// # Panics
    /// If this CPU runs the space; if interrupts are off.
    pub fn destroy(&self, space: &AddressSpace<'_>) -> Destroyed {
        assert!(!self.is_running(space), "destroying a space that runs here");
        if let Some(destroyed) = self.end_counted(space) {
            return destroyed;
        }
        let everyone = if self.has_flag(flag::EXACT_SET) { Needs::EVERYONE } else { Needs::NOTHING };
        let request = Request {
            space: space.id,
            token: space.token,
            generation: space.generation(),
            extent: Extent::Everything,
            stride: Stride::Page4K,
            needs: Needs::TABLES.and(everyone),
        };
        self.shootdown(Translations::OfSpace(space), request, Reason::Destroy);
        Destroyed::Now
    }
}

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
