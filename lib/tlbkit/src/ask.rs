//! Asking others to flush: who must be told, the request in the mailbox, the interrupts. The diagram is in
//! `shootdown.rs`.

use core::slice;

use crate::addr::CpuId;
use crate::address_space::{AddressSpace, Translations};
use crate::cpu_set::{AtomicCpuSet, each_cpu, first_cpu, split};
use crate::cpu_state::{CpuState, Presence};
use crate::hardware::{Event, Hardware};
use crate::request::{Extent, InUse, Needs, Request};
use crate::ring::Responders;
use crate::sync::{AtomicU64, Ordering};
use crate::tlb::{Cpu, flag};
use crate::union::Union;

/// Some CPUs of one word of a set.
#[derive(Clone, Copy)]
struct Chosen {
    bits: u64,
    count: u32,
}

impl<'k, H: Hardware> Cpu<'_, 'k, H> {
    /// Asks by the first mailbox, when no other is in use, each CPU that must flush before the shootdown returns, and
    /// interrupts it: the outbox, and how many were asked. Nothing, and nobody asked, if that takes
    /// [`ask_any`](Self::ask_any).
    ///
    /// It is for a single word of CPUs; the most common request, of those that use the space, is chosen for in place.
    #[inline(always)]
    pub(crate) fn ask(
        &self,
        translations: Translations<'_, H::Set>,
        request: &Request<'_>,
    ) -> Option<(&'k AtomicU64, u32)> {
        if let Some(word) = self.only_candidates(translations, request.needs)
            && let Some(of_outbox) = self.tlb.matrix.outbox_word(self.id, 0)
        {
            // Acquire: as in `others`.
            let others = word.load(Ordering::Acquire) & !split(self.id).1;
            let is_of_space = matches!(translations, Translations::OfSpace(_));
            let (id, are_tables_freed) = (request.space, request.needs(Needs::TABLES));
            let chosen = if !is_of_space || request.needs(Needs::OF_MORE) || self.has_flag(flag::LAZY_TOLD) {
                self.choose_responders(0, others, request)
            } else if are_tables_freed {
                self.choose(0, others, |seen| seen.may_run(id) || seen == Presence::lazy(id))
            } else {
                self.choose(0, others, |seen| seen.may_run(id))
            };
            self.tell_of_choice(others, chosen);
            if chosen.bits != 0 {
                self.state.first.mailbox().post(request, InUse::FirstAlone);
                // Release: as in `ask_any`.
                of_outbox.store(chosen.bits, Ordering::Release);
                self.interrupt(0, slice::from_ref(of_outbox), chosen.count);
            }
            return Some((of_outbox, chosen.count));
        }
        None
    }

    /// The same for any number of CPUs and any request: all words are chosen first, then all are interrupted.
    #[inline(never)]
    pub(crate) fn ask_any(
        &self,
        slot: usize,
        translations: Translations<'_, H::Set>,
        request: &Request<'_>,
    ) -> Responders<'k> {
        let (mut words, mut count) = (0..0, 0);
        let outbox = self.tlb.matrix.outbox(self.id, slot).words();
        for (index, word) in self.candidates(translations, request.needs).words().iter().enumerate() {
            let others = self.others(index, word);
            let chosen = self.choose_responders(index, others, request);
            self.tell_of_choice(others, chosen);
            if chosen.bits == 0 {
                continue;
            }
            // The request is in the mailbox before the first bit of the outbox leads anybody there.
            if count == 0 {
                self.post_anywhere(slot, request);
                words.start = index;
            }
            // Release: the mailbox is whole; partner is the Acquire of the outbox in `answer`.
            outbox[index].store(chosen.bits, Ordering::Release);
            words.end = index + 1;
            count += chosen.count;
        }
        let asked = Responders { words: &outbox[words.clone()], start: words.start, count };
        if count != 0 {
            self.interrupt(asked.start, asked.words, count);
        }
        asked
    }

    /// The CPUs that may hold what goes.
    #[inline(always)]
    fn candidates<'a>(&'a self, translations: Translations<'a, H::Set>, needs: Needs) -> AtomicCpuSet<'a> {
        match translations {
            Translations::OfSpace(space) if !needs.any_of(Needs::GLOBAL) => space.cpus(),
            // A global entry belongs to no tag: whoever has ever run the space may hold it.
            _ => self.tlb.online(),
        }
    }

    /// The same if they are a single word.
    #[inline(always)]
    fn only_candidates<'a>(&'a self, translations: Translations<'a, H::Set>, needs: Needs) -> Option<&'a AtomicU64> {
        match translations {
            Translations::OfSpace(space) if !needs.any_of(Needs::GLOBAL) => match space.cpus().words() {
                [word] => Some(word),
                _ => None,
            },
            _ => self.tlb.matrix.online_word(),
        }
    }

    /// True if another CPU in the set of `space` than this one would be asked for `request` now.
    pub(crate) fn would_ask(&self, space: &AddressSpace<H::Set>, request: &Request<'_>) -> bool {
        let mut words = space.cpus().words().iter().enumerate();
        words.any(|(index, word)| self.choose_responders(index, self.others(index, word), request).bits != 0)
    }

    /// Those of `others`, the word at `index` of a set of CPUs, that must be asked.
    ///
    /// INV-5: lazy CPUs are left alone, unless page tables are freed or the policy knows no other way.
    #[inline(never)]
    fn choose_responders(&self, index: usize, others: u64, request: &Request<'_>) -> Chosen {
        let (space, needs) = (request.space, request.needs);
        let are_lazy_told = needs.any_of(Needs::TABLES) || self.has_flag(flag::LAZY_TOLD);
        if let Extent::Loaded(union) = request.extent {
            return self.choose_of_batch(index, others, union, needs);
        }
        let is_everybody = space.0 == 0 || needs.any_of(Needs::OF_MORE);
        self.choose(index, others, |seen| match seen {
            // One that is absent answers nobody, and flushes everything when it returns.
            _ if is_everybody => !seen.is_absent(),
            _ => seen.may_run(space) || are_lazy_told && seen == Presence::lazy(space),
        })
    }

    /// The same for a batch: those that run one of its spaces, or are on their way from one space to another. Whoever
    /// is lazy looks at the generation when it comes back, whatever the policy: no old kernel had such batches.
    #[inline(always)]
    fn choose_of_batch(&self, index: usize, others: u64, union: &Union, needs: Needs) -> Chosen {
        let named = others & union.word(index);
        if needs.any_of(Needs::TABLES) {
            return self.choose_of_batch_and_lazy(index, named, union);
        }
        // One that has left, or runs the kernel's own tables, shows itself as lazy.
        let runs_one = |seen: Presence| seen == Presence::SWITCHING || union.has_space(seen.space());
        self.choose(index, named, |seen| !seen.is_lazy() && runs_one(seen))
    }

    /// The same where page tables are freed: those that hold one of its spaces lazily as well.
    #[inline(never)]
    fn choose_of_batch_and_lazy(&self, index: usize, named: u64, union: &Union) -> Chosen {
        self.choose(index, named, |seen| match seen {
            Presence::SWITCHING => true,
            Presence::KERNEL => false,
            _ => !seen.is_absent() && union.has_space(seen.space()),
        })
    }

    #[inline(always)]
    fn tell_of_choice(&self, others: u64, chosen: Chosen) {
        self.hardware.event(Event::Chosen { asked: chosen.count, skipped: (others & !chosen.bits).count_ones() });
    }

    /// The CPUs of `word`, the one at `index` of a set, but this one.
    #[inline(always)]
    fn others(&self, index: usize, word: &AtomicU64) -> u64 {
        let (own_word, own_bit) = split(self.id);
        // Acquire: partner is the Release with which a CPU leaves the set: what it did in the space is over. It is read
        // after the revocation, by the fence in `advance` (or in `announce`, for the kernel).
        word.load(Ordering::Acquire) & if index == own_word { !own_bit } else { !0 }
    }

    /// Those of `bits`, the word at `index` of a set, whose presence asks for it.
    #[inline(always)]
    fn choose(&self, index: usize, bits: u64, is_asked: impl Fn(Presence) -> bool) -> Chosen {
        let (cpus, mut left, mut chosen) = (self.tlb.cpus, bits, Chosen { bits: 0, count: 0 });
        while let Some(cpu) = first_asked(cpus, index, &mut left, &is_asked) {
            chosen.bits |= split(cpu).1;
            chosen.count += 1;
            left &= left - 1;
        }
        chosen
    }

    /// Leaves a hint with each of `count` CPUs that are named in `words` of the outbox, the first of them at `start`,
    /// and interrupts it, unless it has an interrupt on the way.
    #[inline(always)]
    fn interrupt(&self, start: usize, words: &[AtomicU64], count: u32) {
        if count > 1 && count as usize + 1 == self.tlb.cpus.len() {
            return self.interrupt_all();
        }
        for (word, index) in words.iter().zip(start..) {
            // Relaxed: this CPU wrote it. A responder clears its bit before it finds the hint below only if it looked
            // here for the sake of another mailbox's: it needs no hint then.
            each_cpu(index, word.load(Ordering::Relaxed), |cpu| {
                if self.tlb.matrix.inbox(cpu).leave_hint(self.id) {
                    self.hardware.send_ipi(cpu);
                }
            });
        }
    }

    /// The same where every other CPU is asked: none is off line then. One interrupt goes to all, unless one of them is
    /// found to have an interrupt on the way; where many flush at once, most have. In an inbox of several words without
    /// a top, those of 65 to 512 CPUs, only an interrupt that goes with this CPU's own word is found; where the top has
    /// several words, above 4,096 CPUs, only one that goes with its own word on top.
    ///
    /// Who is passed over is interrupted after all when a busy one is found, as others rely on it by then:
    ///
    /// ```text
    /// this CPU                                  another initiator
    /// leaves the first hint with cpu2
    ///                                           finds it there, so it sends no interrupt to cpu2
    /// finds that cpu3 has one on the way
    /// interrupts cpu2
    ///                                           waits for the answer of cpu2
    /// ```
    ///
    /// So it does not look at the outbox either, where the bit of cpu2 may be cleared by now. A hint whose bit is
    /// cleared is taken for nothing.
    #[inline(never)]
    fn interrupt_all(&self) {
        let others = (0..self.tlb.cpus.len() as u32).map(CpuId).filter(|&cpu| cpu != self.id);
        let leave_hint = |cpu| self.tlb.matrix.inbox(cpu).leave_hint(self.id);
        let Some(busy) = others.clone().find(|&cpu| !leave_hint(cpu)) else {
            return self.hardware.send_ipi_to_others();
        };
        others.filter(|&cpu| cpu < busy || cpu > busy && leave_hint(cpu)).for_each(|cpu| self.hardware.send_ipi(cpu));
    }
}

/// The first of `left`, the word at `index` of a set, whose presence asks for it; those before it are taken out. A loop
/// of its own, since a compiler that sees both as one computes for each CPU what only those that are asked need.
#[inline(always)]
fn first_asked(cpus: &[CpuState], index: usize, left: &mut u64, is_asked: impl Fn(Presence) -> bool) -> Option<CpuId> {
    while *left != 0 {
        let cpu = first_cpu(index, *left);
        // Acquire: partner is the Release that ends a switch, begins lazy mode or leaves: what that CPU did is over.
        if is_asked(Presence(cpus[cpu.0 as usize].presence.load(Ordering::Acquire))) {
            return Some(cpu);
        }
        *left &= *left - 1;
    }
    None
}
