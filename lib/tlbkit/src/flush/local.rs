//! The flush on one CPU: the same for the initiator and for its responders (Linux: `flush_tlb_func`).
//!
//! **The rule**, INV-4: pages are flushed one by one only if that takes the ASID from its generation to the next one,
//! and the next one is the space's newest. Two requests may be carried out in reverse order. Suppose 1 -> 2 is to flush
//! everything and 2 -> 3 one page. Carrying out the second one first, page by page, would mark the ASID as "3" with the
//! entries of 2 still in the TLB. So the second one, if it comes first, flushes everything, and the first one then
//! finds nothing left to do.
//!
//! The public functions at the end flush this CPU alone, and touch no generation.

use super::request::{Extent, Needs, Request, Step};
use crate::addr::{PhysAddr, Stride, VirtAddr};
use crate::cpu::state::Presence;
use crate::cpu::{Cpu, flag};
use crate::hardware::{Cr3, Event, Hardware, Invpcid, IrqsOff, Pcid};
use crate::space::shared::Stamp;
use crate::space::{AddressSpace, Generation, SpaceId};
use crate::sync::Ordering;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Flushes on this CPU what `request` names, be it its own or another CPU's.
    ///
    /// When it returns, this CPU uses no old translation that the request names, and walks no old page table if the
    /// request frees some. If the space does not run here, its ASID is left alone: its generation is older than the
    /// space's, so a later switch to the space flushes. Global entries have no generation, and are flushed at once.
    #[inline(always)]
    pub(crate) fn flush_local(&self, request: &Request<'_>, irqs: &IrqsOff) {
        let presence = self.presence();
        debug_assert!(presence != Presence::SWITCHING, "a switch flushes nothing, and answers nobody");
        // Of kernel addresses this is never true: their space is 0, and a presence of 0 says that the CPU is switching.
        if presence == Presence::running(request.space) {
            self.flush_running(|| self.with_space_of(request.token, AddressSpace::stamp), request, irqs);
        } else {
            self.flush_not_running(presence, *request, irqs);
        }
    }

    /// Flushes what `request` names of the space that runs here, whose `newest` generation is read if the ASID is not
    /// up to date. Afterwards the ASID's generation is at least the request's: the same request, or an older one, finds
    /// nothing left to do.
    #[inline(always)]
    pub(crate) fn flush_running(&self, newest: impl Fn() -> Stamp, request: &Request<'_>, irqs: &IrqsOff) {
        if self.has_broadcast() && self.follow(newest()) {
            return;
        }
        let asid = self.asid();
        let held = self.state.asids.generation(asid);
        if request.generation <= held {
            return self.skip_current(request.needs, irqs);
        }
        let newest = self.generation_in(newest());
        let is_next = request.generation == held.next() && newest == request.generation;
        match request.extent {
            Extent::Range { start, pages } if is_next && !self.has_flag(flag::ISOLATED) => {
                // Recorded before the flush, as nobody else reads it: then it need not be kept in a register.
                self.state.asids.set_generation(asid, newest);
                for_each_page(start, pages, request.step, |va| self.hardware.invlpg(va));
            }
            Extent::Range { .. } | Extent::List(_) if is_next => {
                self.flush_pages(*request);
                self.state.asids.set_generation(asid, newest);
            }
            _ if self.has_directories() && request.needs(Needs::WITHIN) => {
                self.flush_within(request, held, newest, irqs)
            }
            _ => self.flush_whole_space(newest, request.needs, irqs),
        }
    }

    /// Another request has flushed this already, except for global entries: generations say nothing about those, since
    /// what made the ASID current may have been a CR3 write (INV-11).
    #[cold]
    fn skip_current(&self, needs: Needs, irqs: &IrqsOff) {
        if needs.any_of(Needs::GLOBAL) {
            self.flush_all_and_globals(irqs);
        }
        self.hardware.event(Event::AlreadyCurrent);
    }

    /// Flushes all that is cached under the loaded ASID, up to the `newest` generation, and global entries if they are
    /// named.
    #[inline(never)]
    pub(super) fn flush_whole_space(&self, newest: Generation, needs: Needs, irqs: &IrqsOff) {
        let asid = self.asid();
        self.state.asids.set_generation(asid, newest);
        if self.has_flag(flag::ISOLATED) {
            self.defer_user_flush();
        }
        // Read after `newest`: `reload_roots` may be what made it so.
        let has_other_root = self.has_directories() && self.look_for_root();
        if needs.any_of(Needs::GLOBAL) {
            self.flush_all_and_globals(irqs);
            if !has_other_root {
                return;
            }
        }
        self.load_cr3(Cr3::flushing(PhysAddr(self.state.root.get()), asid.pcid()));
    }

    /// Carries out a request that is about kernel addresses, about a batch, or about a space that does not run here.
    fn flush_not_running(&self, presence: Presence, request: Request<'_>, irqs: &IrqsOff) {
        match request.space {
            SpaceId::KERNEL => return self.flush_kernel(&request, irqs),
            // A batch: whatever runs here is brought up to its newest generation.
            SpaceId::LOADED if !presence.is_lazy() => return self.catch_up(request.needs, irqs),
            // What is held in lazy TLB mode is left alone, unless page-table pages are freed: this CPU must not walk
            // them any more.
            SpaceId::LOADED => {
                if presence != Presence::KERNEL && request.needs(Needs::TABLES) {
                    self.leave_on_request(irqs);
                }
                return;
            }
            // Leaving is cheaper than a flush, and ends the page walks as well (C-20). When this CPU comes back to the
            // space it finds its ASID stale.
            space if presence == Presence::lazy(space) => self.leave_on_request(irqs),
            space => {
                self.hardware.event(Event::WrongSpace);
                if request.needs(Needs::TRIM) {
                    // Only this CPU takes itself out (C-07). The ASID is forgotten first: an ASID names a space only
                    // while this CPU is in its CPU set.
                    self.state.asids.forget(space);
                    // Release: nothing of the space is used after it; partner is the fence in `advance`, before the CPU
                    // set is read.
                    self.with_space_of(request.token, |space| space.cpus().remove(self.id, Ordering::Release));
                }
            }
        }
        if request.needs(Needs::GLOBAL) {
            self.flush_all_and_globals(irqs);
        }
    }

    /// Brings the space that runs here up to its newest generation.
    #[inline(always)]
    pub(crate) fn catch_up(&self, needs: Needs, irqs: &IrqsOff) {
        let stamp = self.with_space_of(self.loaded_token(), AddressSpace::stamp);
        if self.has_broadcast() && self.follow(stamp) {
            return;
        }
        let newest = self.generation_in(stamp);
        if self.state.asids.generation(self.asid()) == newest {
            return self.hardware.event(Event::AlreadyCurrent);
        }
        self.flush_whole_space(newest, needs, irqs);
    }

    /// Flushes kernel addresses, under every PCID of this CPU. Without isolation kernel entries are global, unless the
    /// request has [`Needs::NON_GLOBAL`], and INVLPG flushes global entries under every PCID.
    fn flush_kernel(&self, request: &Request<'_>, irqs: &IrqsOff) {
        if request.needs(Needs::TABLES) || request.extent == Extent::Everything {
            return self.flush_all_and_globals(irqs);
        }
        for_each_page_of(request, |va| self.hardware.invlpg(va));
        if self.has_flag(flag::ISOLATED) || request.needs(Needs::NON_GLOBAL) {
            if self.has_broadcast() {
                return self.flush_all_and_globals(irqs); // not every PCID has an ASID here that could be forgotten
            }
            // Entries that are not global may be stale under the other PCIDs, and under the kernel's own.
            let is_in_space = self.presence() != Presence::KERNEL;
            self.state.asids.forget_others(is_in_space.then(|| self.asid()));
            self.state.kernel_pcid_stale.set(u8::from(is_in_space));
            self.state.pending_user.set(u64::MAX);
        }
    }

    /// Flushes the pages that the request names one by one, in both halves if there are two.
    ///
    /// The user half is flushed as a whole, later, if INVPCID page by page would not do: it flushes only the cached
    /// path of the address that it names, so not what a freed page-table page needs (C-27); and unlike INVLPG it faults
    /// on an address that is not canonical (C-31), so a range may not run out of the user half.
    pub(super) fn flush_pages(&self, request: Request<'_>) {
        let is_isolated = self.has_flag(flag::ISOLATED);
        if is_isolated && !request.needs(Needs::TABLES) && self.flushes_user_pages_now() && is_in_user_half(&request) {
            return for_each_page_of(&request, |va| {
                self.hardware.invlpg(va);
                self.flush_user_page(va);
            });
        }
        if is_isolated {
            self.defer_user_flush();
        }
        for_each_page_of(&request, |va| self.hardware.invlpg(va));
    }

    /// Flushes everything under every PCID, global entries too: by INVPCID, or by CR4.PGE off and on (C-33, C-51).
    #[cold]
    pub(crate) fn flush_all_and_globals(&self, _irqs: &IrqsOff) {
        if self.hardware.features().invpcid {
            self.hardware.invpcid(Invpcid::AllAndGlobals);
        } else {
            self.hardware.toggle_pge();
        }
    }
}

/// Flushes of this CPU alone.
impl<H: Hardware> Cpu<'_, '_, H> {
    /// Flushes what this CPU caches of `pages` adjoining translations from `va` on, in the page tables that it has
    /// loaded. For entries that are right in memory, of which this CPU may cache older versions that allow less: a
    /// fault that turns out to be spurious, or a permission that was just widened. Any range is safe to name.
    ///
    /// It sends no IPI, waits for nobody, and touches no generation, so interrupts may be off and locks held. It does
    /// not promise anything about other CPUs, which go on using what they cache, nor about spaces that are not loaded
    /// here. To take something away use [`flush_range`](Self::flush_range) or [`TlbGather`](crate::TlbGather); nothing
    /// may be freed on the strength of this call.
    ///
    /// x86 drops the entry that led to a fault by itself, in the half in which it faulted. So this call is for an
    /// access that is not to fault first, for both halves under isolation, and for more pages than the one that
    /// faulted.
    pub fn flush_this_cpu(&self, va: VirtAddr, pages: u32, stride: Stride) {
        let request = self.request_for(va, pages, stride, Needs::NOTHING);
        self.with_irqs_off_here(|irqs| match request.extent {
            // Rare: both halves at once, rather than a decision for each.
            Extent::Everything => self.flush_all_and_globals(irqs),
            _ => self.flush_pages(request),
        });
    }

    /// Flushes what this CPU caches of `pages` adjoining kernel addresses from `va` on: for a mapping that only this
    /// CPU uses. Under isolation they are flushed under every PCID. Without it they count as global: an entry that
    /// lacks the global bit stays under the other PCIDs. Otherwise as [`flush_this_cpu`](Self::flush_this_cpu).
    pub fn flush_kernel_on_this_cpu(&self, va: VirtAddr, pages: u32, stride: Stride) {
        let request = self.request_for(va, pages, stride, Needs::GLOBAL);
        self.with_irqs_off_here(|irqs| self.flush_kernel(&request, irqs));
    }

    /// Flushes all that this CPU caches of the space that is loaded, in both halves; global entries and other PCIDs
    /// stay. Otherwise as [`flush_this_cpu`](Self::flush_this_cpu).
    pub fn flush_loaded_on_this_cpu(&self) {
        self.with_irqs_off_here(|_| {
            let is_kernel = self.presence() == Presence::KERNEL;
            if self.has_flag(flag::ISOLATED) && !is_kernel {
                self.defer_user_flush();
            }
            let pcid = if is_kernel { Pcid::KERNEL } else { self.asid().pcid() };
            self.load_cr3(Cr3::flushing(PhysAddr(self.state.root.get()), pcid));
        });
    }

    /// Flushes everything that this CPU caches: every PCID, both halves, global entries. Otherwise as
    /// [`flush_this_cpu`](Self::flush_this_cpu).
    pub fn flush_all_on_this_cpu(&self) {
        self.with_irqs_off_here(|irqs| self.flush_all_and_globals(irqs));
    }

    /// A range, of no space and of no generation; everything if its pages are too many to be flushed one by one.
    #[inline(always)]
    pub(crate) fn request_for(&self, va: VirtAddr, pages: u32, stride: Stride, needs: Needs) -> Request<'static> {
        let is_everything = self.tlb.knobs().is_everything(&self.tlb.policy().range, u64::from(pages), u64::MAX);
        let extent = if is_everything { Extent::Everything } else { Extent::Range { start: va, pages } };
        Request { extent, step: Step::from_stride(stride), ..Request::everything(needs) }
    }
}

/// Calls `f` with the address of each page of a range.
fn for_each_page(start: VirtAddr, pages: u32, step: Step, f: impl Fn(VirtAddr)) {
    let mut va = start.0;
    for _ in 0..pages {
        f(VirtAddr(va));
        va = va.wrapping_add(step.bytes());
    }
}

/// Calls `f` with the address of each page that a request names one by one.
pub(crate) fn for_each_page_of(request: &Request<'_>, f: impl Fn(VirtAddr)) {
    match request.extent {
        Extent::Everything | Extent::Loaded(_) | Extent::Within(_) => {}
        Extent::Range { start, pages } => for_each_page(start, pages, request.step, f),
        Extent::List(list) => list.for_each(f),
    }
}

/// The end of the user half with four levels of page tables. With five, the part beyond it is flushed as a whole.
const USER_END: u64 = 1 << 47;

/// True if every page that a request names one by one lies in the user half.
pub(crate) fn is_in_user_half(request: &Request<'_>) -> bool {
    match request.extent {
        Extent::Everything | Extent::Loaded(_) | Extent::Within(_) => false,
        Extent::Range { start, pages } => {
            let bytes = u64::from(pages) << request.step.shift();
            start.0.saturating_add(bytes) <= USER_END
        }
        Extent::List(list) => list.is_below(USER_END),
    }
}
