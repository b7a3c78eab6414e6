//! Who must be told, the request, the receiver, the answer.
//!
//! The outbox is the truth, the inbox a hint where to look:
//!
//! ```text
//!   sender                                    target (answer)
//!   write mailbox
//!   outbox[sender] := targets   (Release)     take inbox[target]          (Acquire)
//!   inbox[target] |= sender     (Release)     is my bit in outbox[sender]? (Acquire)
//!   interrupt                                 read mailbox, carry it out
//!   wait until outbox[sender] = 0 (Acquire)   clear my bit                (Release)
//! ```
//! A target reads a mailbox only while its bit in that outbox is set, and only the target clears the bit: so the
//! mailbox is whole while it is read, a request sent twice is answered once, and a stray interrupt is harmless
//! (C-56, C-63). The names of the CPUs that are late stand in the outbox; the wait is in `wait.rs`.

use core::ops::Range;

use crate::addr::{CpuId, Stride, VirtAddr};
use crate::address_space::{AddressSpace, Generation, Translations};
use crate::cpu_set::{each_cpu, split};
use crate::cpu_state::{Cpu, Presence, flag};
use crate::hardware::{Event, Hardware, IrqsOff};
use crate::history::state::Room;
use crate::policy::{Lazy, LocalFlush};
use crate::reason::Reason;
use crate::request::{Extent, Request, scope};
use crate::sync::{AtomicU64, Ordering, fence};

/// Whether a destroyed space's top-level table may be freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Destroyed {
    /// No CPU has it loaded.
    Now,
    /// A CPU still holds it lazily; [`Event::LastLazyReference`] will say when.
    WhenUnreferenced,
}

/// Whom a flush has told: how many CPUs, and the words of the outbox from the first that names one to the last.
struct Told {
    cpus: u32,
    words: Range<usize>,
}

impl Told {
    /// Adds `cpus` of the word at `index`; words come in order.
    #[inline(always)]
    const fn add(&mut self, index: usize, cpus: u32) {
        if cpus != 0 {
            self.words.start = if self.cpus == 0 { index } else { self.words.start };
            self.words.end = index + 1;
            self.cpus += cpus;
        }
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Flushes everywhere what `extent` names; the page tables have been changed. When it returns no CPU can use an old
    /// translation, nor walk an old table if [`scope::TABLES`] is asked for (INV-6).
    #[inline(always)]
    pub(crate) fn shoot(&self, translations: Translations<'_, '_>, mut request: Request<'_>, reason: Reason) {
        assert!(self.state.is_sending.get() == 0, "a flush inside the wait of another: flushes are not for interrupts");
        self.hardware.event(Event::FlushBegin(request.pages().unwrap_or(u32::MAX)));
        let Translations::OfSpace(space) = translations else {
            // SeqCst: the PTE change comes before the online CPUs are read; partner is the fence in `bring_up`.
            fence(Ordering::SeqCst);
            return self.shoot_others(translations, &request, reason);
        };
        request.generation = space.advance();
        if request.generation.0 & self.tlb.trim_mask == 0 || request.has(self.tlb.trims_with) {
            request.scope |= scope::TRIM;
        }
        let runs_here = self.presence() == Presence::running(space.id);
        if request.has(scope::GLOBAL) || !runs_here || self.has_flag(flag::COUNTS) || !self.is_alone_with(space) {
            return self.shoot_others(translations, &request, reason);
        }
        // The common path: a program on one CPU. Whoever joins from here on finds the new generation (INV-2).
        self.hardware.with_irqs_off(|irqs| self.flush_loaded(space, &request, irqs));
        self.hardware.event(Event::FlushLocalDone);
        self.hardware.event(Event::FlushEnd);
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
            scope: 0,
        };
        self.shoot(Translations::OfSpace(space), request, why);
    }

    /// True if no other CPU can hold translations of `space`.
    #[inline(always)]
    fn is_alone_with(&self, space: &AddressSpace<'_>) -> bool {
        let (own_word, own_bit) = split(self.id);
        // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. After the
        // revocation by the fence in `advance`.
        let others = |(index, word): (usize, &AtomicU64)| {
            word.load(Ordering::Acquire) & !if index == own_word { own_bit } else { 0 } // Acquire: as above
        };
        space.cpus.words().iter().enumerate().all(|word| others(word) == 0)
    }

    /// The second half of [`shoot`](Self::shoot), when others may have to be told or flushes are counted.
    #[inline(never)]
    fn shoot_others(&self, translations: Translations<'_, '_>, request: &Request<'_>, reason: Reason) {
        let began = self.clock();
        let is_before = self.tlb.policy().local_flush == LocalFlush::BeforeRemote;
        if is_before {
            self.flush_here(request);
        }
        let told = self.tell(translations, request);
        if !is_before {
            self.flush_here(request);
        }
        self.count(request, reason, told.cpus, began);
        if told.cpus != 0 {
            self.wait(told.words);
        }
        self.hardware.event(Event::FlushEnd);
    }

    fn flush_here(&self, request: &Request<'_>) {
        self.hardware.with_irqs_off(|irqs| self.carry_out(request, irqs));
        self.hardware.event(Event::FlushLocalDone);
    }

    /// Tells every CPU that must know.
    #[inline(always)]
    fn tell(&self, translations: Translations<'_, '_>, request: &Request<'_>) -> Told {
        let candidates = match translations {
            Translations::OfSpace(space) if !request.has(scope::GLOBAL) => space.cpus,
            // A global entry belongs to no tag: whoever has ever run the space may hold it.
            _ => self.tlb.online(),
        };
        let mut told = Told { cpus: 0, words: 0..0 };
        let (own_word, own_bit) = split(self.id);
        for (index, word) in candidates.words().iter().enumerate() {
            // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. After
            // the revocation by the fence in `advance` (or in `shoot`, for the kernel).
            let mut bits = word.load(Ordering::Acquire);
            if index == own_word {
                bits &= !own_bit;
            }
            if bits != 0 {
                told.add(index, self.choose(index, bits, request, told.cpus == 0));
            }
        }
        if told.cpus != 0 {
            self.interrupt(&told);
        }
        told
    }

    /// Writes into the outbox those of `bits` that must be told; the mailbox first, before the first of all.
    #[inline(never)]
    fn choose(&self, index: usize, bits: u64, request: &Request<'_>, is_first: bool) -> u32 {
        let mut chosen = 0;
        each_cpu(index, bits, |cpu| {
            if self.must_tell(cpu, request) {
                chosen |= split(cpu).1;
            }
        });
        if chosen != 0 {
            if is_first {
                self.state.mailbox.post(request);
                self.state.is_sending.set(1);
            }
            // Release: the mailbox is whole; partner is the Acquire of the outbox in `answer`.
            self.tlb.matrix.outbox(self.id).words()[index].store(chosen, Ordering::Release);
        }
        chosen.count_ones()
    }

    /// INV-5 and INV-2, sender's side: a CPU in the middle of a switch is a target; one that runs something else is
    /// not, for it will find the new generation; a lazy one is not, for the same reason, unless tables are freed.
    #[inline(always)]
    fn must_tell(&self, cpu: CpuId, request: &Request<'_>) -> bool {
        // Acquire: partner is the Release that ends a switch, begins lazy mode or leaves: what that CPU did is over.
        let seen = Presence(self.tlb.cpus[cpu.0 as usize].presence.load(Ordering::Acquire));
        if seen == Presence::running(request.space) || seen == Presence::SWITCHING {
            return true;
        }
        if seen == Presence::ABSENT {
            return false; // it answers nobody, and flushes everything when it returns
        }
        if request.space.0 == 0 || request.has(scope::GLOBAL | scope::TRIM | scope::EVERYONE) {
            return true;
        }
        seen == Presence::lazy(request.space)
            && (request.has(scope::TABLES) || self.tlb.policy().lazy != Lazy::SkipUnlessTablesFreed)
    }

    /// Drops the hints and sends the interrupts: one for all if every other CPU is told: none is off line then.
    #[inline(never)]
    fn interrupt(&self, told: &Told) {
        let is_all = told.cpus > 1 && told.cpus as usize + 1 == self.tlb.cpus.len();
        for (index, word) in self.tlb.matrix.outbox(self.id).words_at(told.words.clone()) {
            // Relaxed: this CPU wrote it, and no target clears its bit before it finds the hint below.
            each_cpu(index, word.load(Ordering::Relaxed), |cpu| {
                if self.tlb.matrix.inbox(cpu).add(self.id) && !is_all {
                    self.hardware.send_ipi(cpu);
                }
            });
        }
        if is_all {
            self.hardware.send_ipi_to_others();
        }
    }

    /// Carries out what other CPUs have asked of this one: the interrupt handler, and part of every wait. On a CPU that
    /// has left it does nothing: an interrupt may come after the request that sent it was carried out.
    pub fn answer(&self, irqs: &IrqsOff) {
        if self.presence() == Presence::ABSENT {
            return; // its senders withdraw their requests, and may be writing the next
        }
        self.tlb.matrix.inbox(self.id).take(|sender| self.answer_one(sender, irqs));
    }

    fn answer_one(&self, sender: CpuId, irqs: &IrqsOff) {
        let outbox = self.tlb.matrix.outbox(sender);
        // Acquire: partner is the Release store of the outbox in `choose`: the mailbox is whole.
        if !outbox.contains(self.id, Ordering::Acquire) {
            return;
        }
        self.hardware.event(Event::AnswerBegin(sender));
        let mut room = Room::new();
        let request = self.tlb.cpus[sender.0 as usize].mailbox.read(&mut room);
        self.carry_out(&request, irqs);
        self.hardware.event(Event::AnswerEnd(sender));
        // Release: the flush is over; partner is the Acquire in `wait`.
        outbox.remove(self.id, Ordering::Release);
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
        let everyone = if self.has_flag(flag::EXACT_SET) { scope::EVERYONE } else { 0 };
        let request = Request {
            space: space.id,
            token: space.token,
            generation: space.generation(),
            extent: Extent::Everything,
            stride: Stride::Page4K,
            scope: scope::TABLES | everyone,
        };
        self.shoot(Translations::OfSpace(space), request, Reason::Destroy);
        Destroyed::Now
    }
}
