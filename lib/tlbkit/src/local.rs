//! What a flush does on one CPU: the same for the initiator and for those it asks.
//!
//! INV-4: pages alone are flushed only if that takes the slot from its generation to the next, and the next is the
//! space's newest. Two requests may be carried out in reverse order: if 1 -> 2 wants everything and 2 -> 3 one
//! page, doing 3 first by its page would mark the slot as "3" with the entries of 2 still there. So 3 first means
//! everything, and 2 then finds nothing left to do.

use crate::addr::{PhysAddr, VirtAddr};
use crate::address_space::AddressSpace;
use crate::asid::Asid;
use crate::cpu_state::{Cpu, Presence, flag};
use crate::hardware::{Cr3, Event, Hardware, Invpcid, IrqsOff};
use crate::request::{Extent, Request, scope};
use crate::sync::Ordering;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Carries out `request`, its own or another CPU's.
    pub(crate) fn carry_out(&self, request: &Request<'_>, irqs: &IrqsOff) {
        if request.space.0 == 0 {
            return self.flush_kernel(request, irqs);
        }
        let presence = self.presence();
        if presence == Presence::running(request.space) {
            return self.flush_loaded(self.hardware.space(request.token), request, irqs);
        }
        if presence == Presence::lazy(request.space) {
            // Cheaper than a flush, and it ends the walks as well (C-20): whoever comes back finds a stale slot.
            self.load_kernel(irqs);
        } else {
            self.hardware.event(Event::WrongSpace);
            self.leave_set(request);
        }
        if request.has(scope::GLOBAL) {
            self.flush_all_and_globals(irqs);
        }
    }

    /// Trimming happens here alone, on the CPU that leaves, while it runs something else (C-07). The slot goes with the
    /// bit: a slot names a space only while this CPU is in its set.
    fn leave_set(&self, request: &Request<'_>) {
        if request.has(scope::TRIM) {
            self.state.slots.forget(request.space);
            // Release: nothing of the space is used after it; partner is the fence in `advance`, before the set is
            // read.
            self.hardware.space(request.token).cpus.remove(self.id, Ordering::Release);
        }
    }

    /// `space` is the one that the request names, and it runs here.
    #[inline(never)]
    pub(crate) fn flush_loaded(&self, space: &AddressSpace<'_>, request: &Request<'_>, irqs: &IrqsOff) {
        let asid = self.asid();
        let held = self.state.slots.generation(asid);
        if request.generation <= held {
            // Generations say nothing of global entries: what made the slot current may have been a CR3 write (INV-11).
            if request.has(scope::GLOBAL) {
                self.flush_all_and_globals(irqs);
            }
            return self.hardware.event(Event::AlreadyCurrent);
        }
        let newest = space.generation();
        let is_next = request.generation == held.next() && newest == request.generation;
        if is_next && self.flush_extent(request) {
            self.state.slots.set_generation(asid, newest);
        } else {
            self.flush_whole_space(asid, request, irqs);
            self.state.slots.set_generation(asid, newest);
        }
    }

    /// Flushes the pages that the request names, in both halves; false if it names everything.
    #[inline(always)]
    fn flush_extent(&self, request: &Request<'_>) -> bool {
        if request.extent == Extent::Everything {
            return false;
        }
        // Two loops, so that the common one decides nothing for each page.
        if self.settle_user_half(request) == UserHalf::PageByPage {
            each_page(request, |va| {
                self.hardware.invlpg(va);
                self.flush_user_page(va);
            });
        } else {
            each_page(request, |va| self.hardware.invlpg(va));
        }
        true
    }

    /// Decides the user half's way before the pages are flushed. INVPCID type 0 drops only the path of the address it
    /// names, so a request that frees tables owes the whole half (C-27); and where INVLPG does nothing, for an address
    /// that is not canonical, it faults (C-31), so a range that a caller let run out of the half owes it too.
    #[inline(always)]
    fn settle_user_half(&self, request: &Request<'_>) -> UserHalf {
        if !self.has_flag(flag::ISOLATED) {
            return UserHalf::NotNow;
        }
        if !request.has(scope::TABLES) && self.flushes_user_pages_now() && is_in_user_half(request) {
            return UserHalf::PageByPage;
        }
        self.owe_user_half();
        UserHalf::NotNow
    }

    #[inline(never)]
    fn flush_whole_space(&self, asid: Asid, request: &Request<'_>, irqs: &IrqsOff) {
        if self.has_flag(flag::ISOLATED) {
            self.owe_user_half();
        }
        if request.has(scope::GLOBAL) {
            return self.flush_all_and_globals(irqs);
        }
        self.load_cr3(Cr3::flushing(PhysAddr(self.state.root.get()), asid.pcid()));
    }

    /// Kernel addresses: in every tag of this CPU. INVLPG reaches them all where they are global, which they are
    /// without isolation unless the caller says otherwise.
    fn flush_kernel(&self, request: &Request<'_>, irqs: &IrqsOff) {
        let by_page = !request.has(scope::TABLES) && request.extent != Extent::Everything;
        if !by_page {
            return self.flush_all_and_globals(irqs);
        }
        each_page(request, |va| self.hardware.invlpg(va));
        if self.has_flag(flag::ISOLATED) || !request.has(scope::GLOBAL) {
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

/// Calls `f` with the address of each page that a request of pages names.
#[inline(always)]
fn each_page(request: &Request<'_>, f: impl Fn(VirtAddr)) {
    if let Extent::Range { start, pages } = request.extent {
        let (mut va, mut left, step) = (start.0, pages, request.stride.bytes());
        while left != 0 {
            f(VirtAddr(va));
            va = va.wrapping_add(step);
            left -= 1;
        }
    } else if let Extent::List(list) = request.extent {
        list.each(f);
    }
}

/// The end of the user half with four levels of tables. With five, what lies beyond it is flushed as a whole.
const USER_END: u64 = 1 << 47;

/// True if each page that a request of pages names is one of the user half.
fn is_in_user_half(request: &Request<'_>) -> bool {
    match request.extent {
        Extent::Everything => false,
        Extent::Range { start, pages } => {
            let bytes = u64::from(pages) << request.stride.shift();
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
