//! What a flush does on one CPU: the same for the initiator and for those it asks.
//!
//! INV-4: pages alone are flushed only if that takes the slot from its generation to the next, and the next is the
//! space's newest. Two requests may be carried out in reverse order: if 1 -> 2 wants everything and 2 -> 3 one
//! page, doing 3 first by its page would mark the slot as "3" with the entries of 2 still there. So 3 first means
//! everything, and 2 then finds nothing left to do.

use crate::addr::{PhysAddr, SpaceToken, Stride, VirtAddr};
use crate::address_space::{AddressSpace, Generation, SpaceId};
use crate::cpu_state::Presence;
use crate::hardware::{Cr3, Event, Hardware, Invpcid, IrqsOff, Pcid};
use crate::request::{Extent, Needs, Request, Step};
use crate::sync::Ordering;
use crate::tlb::{Cpu, flag};

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Flushes on this CPU what `request` asks for, be it its own or another CPU's.
    ///
    /// When it returns, this CPU uses no old translation that the request names, and walks no old table if it frees
    /// some. If the space does not run here nothing of it is flushed: the slot's generation is older than the
    /// space's, so whoever loads it next flushes.
    ///
    /// What is not common gets a copy of the request, made where it is called: so the common one is never put together
    /// in memory.
    #[inline(always)]
    pub(crate) fn flush_local(&self, request: &Request<'_>, irqs: &IrqsOff) {
        let presence = self.presence();
        debug_assert!(presence != Presence::SWITCHING, "a switch flushes nothing, and answers nobody");
        if presence == Presence::running(request.space) {
            let newest = || self.with_space_of(request.token, AddressSpace::generation);
            return self.flush_loaded(newest, request, irqs);
        }
        if request.space == SpaceId::KERNEL {
            return self.flush_kernel(&{ *request }, irqs);
        }
        if request.space == SpaceId::LOADED {
            return self.catch_up(presence, request.needs, irqs);
        }
        self.flush_not_running(presence, &{ *request }, irqs);
    }

    /// The same for a space that does not run here. Out of line, as all that is not common: so the common case saves no
    /// register for it.
    #[inline(never)]
    fn flush_not_running(&self, presence: Presence, request: &Request<'_>, irqs: &IrqsOff) {
        if presence == Presence::lazy(request.space) {
            // Cheaper than a flush, and it ends the walks as well (C-20): whoever comes back finds a stale slot.
            self.be_made_to_leave(irqs);
        } else {
            self.hardware.event(Event::WrongSpace);
            self.leave_set(request);
        }
        if request.needs(Needs::GLOBAL) {
            self.flush_all_and_globals(irqs);
        }
    }

    /// Brings what is loaded here up to its newest generation: a batch's request. A space that is held lazily is left
    /// alone, unless page tables are freed: then this CPU stops walking it.
    #[inline(never)]
    fn catch_up(&self, presence: Presence, needs: Needs, irqs: &IrqsOff) {
        if presence.is_lazy() {
            return self.catch_up_lazily(presence, needs, irqs);
        }
        let newest = self.with_space_of(SpaceToken(self.state.token.get()), AddressSpace::generation);
        if self.state.slots.generation(self.asid()) == newest {
            return self.hardware.event(Event::AlreadyCurrent);
        }
        self.flush_whole_space(newest, needs, irqs);
    }

    #[inline(never)]
    fn catch_up_lazily(&self, presence: Presence, needs: Needs, irqs: &IrqsOff) {
        // The kernel's own tables count as lazy, and are no space that could be left.
        if presence != Presence::KERNEL && needs.any_of(Needs::TABLES) {
            self.be_made_to_leave(irqs);
        }
    }

    /// Takes this CPU out of the set of a space that it does not run, if the request trims the set. A CPU leaves only
    /// by its own hand (C-07). Its slot goes too: a slot names a space only while this CPU is in the set.
    fn leave_set(&self, request: &Request<'_>) {
        if request.needs(Needs::TRIM) {
            self.state.slots.forget(request.space);
            // Release: nothing of the space is used after it; partner is the fence in `advance`, before the set is
            // read.
            self.with_space_of(request.token, |space| space.cpus().remove(self.id, Ordering::Release));
        }
    }

    /// Flushes what `request` names of the space that runs here, whose `newest` generation is read if it is not up to
    /// date here. When it returns, the slot's generation is at least the request's: the same request, or an older one,
    /// finds nothing left to do.
    #[inline(always)]
    pub(crate) fn flush_loaded(&self, newest: impl FnOnce() -> Generation, request: &Request<'_>, irqs: &IrqsOff) {
        let asid = self.asid();
        let held = self.state.slots.generation(asid);
        if request.generation <= held {
            return self.skip_current(request.needs, irqs);
        }
        let newest = newest();
        let is_next = request.generation == held.next() && newest == request.generation;
        match request.extent {
            // The common case: pages, from one generation to the next (INV-4), of the only half that there is.
            Extent::Range { start, pages } if is_next && !self.has_flag(flag::ISOLATED) => {
                // Noted first, as nobody else reads it: then it need not be kept over the instructions.
                self.state.slots.set_generation(asid, newest);
                each_page(start, pages, request.step, |va| self.hardware.invlpg(va));
            }
            Extent::Range { .. } | Extent::List(_) if is_next => self.flush_both_halves(newest, &{ *request }),
            _ => self.flush_whole_space(newest, request.needs, irqs),
        }
    }

    /// A request that was overtaken by another has nothing left to do, but for global entries: generations say nothing
    /// of them, since what made the slot current may have been a CR3 write (INV-11).
    #[cold]
    fn skip_current(&self, needs: Needs, irqs: &IrqsOff) {
        if needs.any_of(Needs::GLOBAL) {
            self.flush_all_and_globals(irqs);
        }
        self.hardware.event(Event::AlreadyCurrent);
    }

    /// Flushes the pages that the request names one by one, in both halves, and takes the slot to `newest`.
    #[inline(never)]
    fn flush_both_halves(&self, newest: Generation, request: &Request<'_>) {
        self.flush_pages_of_both_halves(request);
        self.state.slots.set_generation(self.asid(), newest);
    }

    /// Flushes the pages that the request names one by one, in both halves if there are two.
    #[inline(always)]
    fn flush_pages_of_both_halves(&self, request: &Request<'_>) {
        // Two loops, so that neither decides anything for each page.
        if self.settle_user_half(request) == UserHalf::PageByPage {
            pages_of(request, |va| {
                self.hardware.invlpg(va);
                self.flush_user_page(va);
            });
        } else {
            pages_of(request, |va| self.hardware.invlpg(va));
        }
    }

    /// Drops what this CPU holds of `pages` adjoining translations from `va` on, in the tables that it has loaded. The
    /// entries in memory are right, and this CPU may hold older ones that allow less: a fault that turns out to be
    /// spurious, or permission that was just widened. Any range is safe to name.
    ///
    /// It tells no other CPU, waits for none, and touches no generation, so interrupts may be off and locks held. What
    /// it does not promise: another CPU goes on using what it holds, and so does this one in spaces that are not
    /// loaded. Whoever takes something away calls [`flush_range`](Self::flush_range) or uses
    /// [`TlbGather`](crate::TlbGather); nothing may be freed on the strength of this call.
    ///
    /// x86 drops the entry that led to a fault by itself, in the half in which it faulted. So the call is for an access
    /// that shall not fault first, for both halves under isolation, and for more pages than the one that faulted.
    pub fn flush_this_cpu(&self, va: VirtAddr, pages: u32, stride: Stride) {
        let request = self.request_here(va, pages, stride, Needs::NOTHING);
        self.with_irqs_off_here(|irqs| {
            if request.extent == Extent::Everything {
                // Rare: what a large range of either half costs, once, rather than a decision for each.
                self.flush_all_and_globals(irqs);
            } else {
                self.flush_pages_of_both_halves(&request);
            }
        });
    }

    /// Drops what this CPU holds of `pages` adjoining kernel addresses from `va` on: for a mapping that only this CPU
    /// uses. Under isolation they go in every tag. Without it they count as global: an entry that lacks that bit stays
    /// under the other tags. Otherwise as [`flush_this_cpu`](Self::flush_this_cpu).
    pub fn flush_kernel_on_this_cpu(&self, va: VirtAddr, pages: u32, stride: Stride) {
        let request = self.request_here(va, pages, stride, Needs::GLOBAL);
        self.with_irqs_off_here(|irqs| self.flush_kernel(&request, irqs));
    }

    /// A range that concerns this CPU alone: of no space, and so of no generation.
    #[inline(always)]
    pub(crate) fn request_here(&self, va: VirtAddr, pages: u32, stride: Stride, needs: Needs) -> Request<'static> {
        let (space, token, generation) = (SpaceId::KERNEL, SpaceToken(0), Generation::NEVER);
        let is_everything = self.is_everything(pages);
        let extent = if is_everything { Extent::Everything } else { Extent::Range { start: va, pages } };
        Request { space, token, generation, extent, step: Step::of(stride), needs }
    }

    /// True if a range of so many pages goes as everything.
    #[inline(always)]
    pub(crate) fn is_everything(&self, pages: u32) -> bool {
        self.tlb.knobs().is_everything(&self.tlb.policy().range, u64::from(pages), u64::MAX)
    }

    /// Drops all that this CPU holds of the space that is loaded, in both halves; global entries and other tags stay.
    /// Otherwise as [`flush_this_cpu`](Self::flush_this_cpu).
    pub fn flush_loaded_on_this_cpu(&self) {
        self.with_irqs_off_here(|_| {
            let is_kernels = self.presence() == Presence::KERNEL;
            if self.has_flag(flag::ISOLATED) && !is_kernels {
                self.owe_user_half();
            }
            let pcid = if is_kernels { Pcid::KERNEL } else { self.asid().pcid() };
            self.load_cr3(Cr3::flushing(PhysAddr(self.state.root.get()), pcid));
        });
    }

    /// Drops everything that this CPU holds: every tag, both halves, global entries. Otherwise as
    /// [`flush_this_cpu`](Self::flush_this_cpu).
    pub fn flush_all_on_this_cpu(&self) {
        self.with_irqs_off_here(|irqs| self.flush_all_and_globals(irqs));
    }

    /// Flushes all that the loaded slot holds, up to the `newest` generation, and the global entries if they are asked
    /// for.
    #[inline(never)]
    fn flush_whole_space(&self, newest: Generation, needs: Needs, irqs: &IrqsOff) {
        let asid = self.asid();
        // Noted first, as for pages: then nothing need be kept over the instruction.
        self.state.slots.set_generation(asid, newest);
        if self.has_flag(flag::ISOLATED) {
            self.owe_user_half();
        }
        if needs.any_of(Needs::GLOBAL) {
            return self.flush_all_and_globals(irqs);
        }
        self.load_cr3(Cr3::flushing(PhysAddr(self.state.root.get()), asid.pcid()));
    }

    /// Decides the user half's way before the pages are flushed. INVPCID type 0 drops only the path of the address it
    /// names, so a request that frees tables owes the whole half (C-27); and where INVLPG does nothing, for an address
    /// that is not canonical, it faults (C-31), so a range that a caller let run out of the half owes it too.
    #[inline(always)]
    fn settle_user_half(&self, request: &Request<'_>) -> UserHalf {
        if !self.has_flag(flag::ISOLATED) {
            return UserHalf::NotNow;
        }
        if !request.needs(Needs::TABLES) && self.flushes_user_pages_now() && is_in_user_half(request) {
            return UserHalf::PageByPage;
        }
        self.owe_user_half();
        UserHalf::NotNow
    }

    /// Kernel addresses: in every tag of this CPU. INVLPG reaches them all where they are global, which they are
    /// without isolation unless the caller says of any of them that it was not.
    #[inline(never)]
    fn flush_kernel(&self, request: &Request<'_>, irqs: &IrqsOff) {
        let by_page = !request.needs(Needs::TABLES) && request.extent != Extent::Everything;
        if !by_page {
            return self.flush_all_and_globals(irqs);
        }
        pages_of(request, |va| self.hardware.invlpg(va));
        if self.has_flag(flag::ISOLATED) || request.needs(Needs::LOCAL) {
            self.owe_other_tags();
        }
    }

    /// Kernel pages that are not global: what other slots and the kernel's own tag hold of them is stale.
    fn owe_other_tags(&self) {
        let is_user_loaded = self.presence() != Presence::KERNEL;
        self.state.slots.forget_others(is_user_loaded.then(|| self.asid()));
        self.state.kernel_tag_stale.set(u8::from(is_user_loaded));
        self.state.pending_user.set(u64::MAX);
    }

    /// Everything in every tag, globals too: INVPCID, or CR4.PGE off and on (C-33, C-51).
    #[cold]
    pub(crate) fn flush_all_and_globals(&self, _irqs: &IrqsOff) {
        if self.hardware.features().invpcid {
            self.hardware.invpcid(Invpcid::AllAndGlobals);
        } else {
            self.hardware.toggle_pge();
        }
    }
}

/// Calls `f` with the address of each page of a range.
#[inline(always)]
fn each_page(start: VirtAddr, pages: u32, step: Step, f: impl Fn(VirtAddr)) {
    let (mut va, mut left, step) = (start.0, pages, step.bytes());
    while left != 0 {
        f(VirtAddr(va));
        va = va.wrapping_add(step);
        left -= 1;
    }
}

/// Calls `f` with the address of each page that a request of pages names.
#[inline(always)]
fn pages_of(request: &Request<'_>, f: impl Fn(VirtAddr)) {
    match request.extent {
        Extent::Everything | Extent::Loaded(_) => {}
        Extent::Range { start, pages } => each_page(start, pages, request.step, f),
        Extent::List(list) => list.each(f),
    }
}

/// The end of the user half with four levels of tables. With five, what lies beyond it is flushed as a whole.
const USER_END: u64 = 1 << 47;

/// True if each page that a request of pages names is one of the user half.
fn is_in_user_half(request: &Request<'_>) -> bool {
    match request.extent {
        Extent::Everything | Extent::Loaded(_) => false,
        Extent::Range { start, pages } => {
            let bytes = u64::from(pages) << request.step.shift();
            start.0.saturating_add(bytes) <= USER_END
        }
        Extent::List(list) => list.is_below(USER_END),
    }
}

/// How the user half's pages are flushed within one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UserHalf {
    PageByPage,
    NotNow,
}
