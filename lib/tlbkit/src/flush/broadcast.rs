//! INVLPGB: what an initiator executes so that no CPU need be interrupted. Which spaces it reaches, and how a space
//! gets there, is in `space/shared.rs`.
//!
//! **The rule.** The PTE is changed, and a fence executed, before the first INVLPGB; TLBSYNC comes last, on the same
//! CPU (C-36). Everything that a CPU fetched before is gone then, and every walk that began before is over (INV-6): on
//! CPUs that run the space, on those that hold it lazily, and on those that ran it once.
//!
//! - One instruction takes so many pages and no more ([`Hardware::broadcast_pages`]), and of 1 GiB one page.
//! - Under isolation the user half has a separate PCID, so it takes a separate INVLPGB (INV-10).
//! - Cached paths to page-table pages stay where none are freed; where some are, they go (C-27).
//! - Kernel addresses, and entries with the global bit, are flushed under every PCID, so no space is asked for its own.
//! - A range that leaves its half of the addresses is flushed as everything: no manual says what becomes of what is
//!   in between.
//! - A batch that holds a space with such a PCID flushes all PCIDs of all CPUs, but no global entries (Linux does the
//!   same), so nobody is interrupted for its other spaces either. It names no PCID, so it may be filled and flushed on
//!   different CPUs.

use super::local::{for_each_page_of, is_in_user_half};
use super::request::{Extent, Needs, Request, Step};
use super::shootdown::Outcome;
use crate::addr::{Stride, VirtAddr};
use crate::cpu::asid::Asid;
use crate::cpu::state::Presence;
use crate::cpu::{Cpu, flag};
use crate::hardware::{Event, Hardware, Invlpgb, Invpcid, IrqsOff, Pcid, Tables};
use crate::policy::{Broadcast, Reason};
use crate::space::shared::Stamp;
use crate::space::{AddressSpace, SpaceId, Translations};

/// The first address of the kernel's half with four levels of page tables.
const KERNEL_START: u64 = !0 << 47;

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Gives `space` a PCID that all CPUs share, so that INVLPGB reaches it everywhere, and returns it. If it has one,
    /// that is it. The policy does this by itself for spaces that need it; a kernel that knows earlier asks. The space
    /// keeps the PCID until it ends, by [`destroy`](Self::destroy) or [`destroy_later`](Self::destroy_later).
    ///
    /// Nothing if the machine has no INVLPGB, or the policy does not use it; if the machine has no PCIDs; if all are
    /// taken; or if another CPU is just giving it one. The space is then used as before.
    ///
    /// # Panics
    /// As [`TlbGather::flush`](crate::TlbGather::flush).
    pub fn share_pcid(&self, space: &AddressSpace<H::Set>) -> Option<Pcid> {
        let has_pcids = self.state.cr3_mask.get() == u64::MAX;
        if !self.has_broadcast() || !has_pcids {
            return None;
        }
        if !space.begin_move() {
            return space.stamp().pcid();
        }
        let Some(pcid) = self.tlb.shared_pcids.take() else {
            space.end_move();
            return None;
        };
        self.broadcast_pcid(pcid);
        space.name_pcid(pcid);
        let request = Request::everything(Needs::TABLES.with(Needs::ANSWER)).in_space(space);
        self.shootdown(Translations::OfSpace(space), request, Reason::RemoveAll);
        space.end_move();
        Some(pcid)
    }

    /// Moves the space of a flush that has interrupted so many CPUs, if this one runs it and the policy says so.
    pub(crate) fn share_if_due(&self, whose: Translations<'_, H::Set>, request: &Request<'_>, responders: u32) {
        let (Translations::OfSpace(space), Broadcast::From { cpus }) = (whose, self.tlb.policy().broadcast) else {
            return;
        };
        let is_running = self.presence() == Presence::running(space.id);
        if responders >= cpus.max(1) && is_running && !request.needs(Needs::ANSWER) {
            self.share_pcid(space);
        }
    }

    /// No CPU holds `space` any more: its PCID, if it has one, may become another space's.
    pub(crate) fn give_pcid_back(&self, space: &AddressSpace<H::Set>) {
        if self.has_broadcast()
            && let Some(pcid) = space.stamp().pcid()
        {
            self.tlb.shared_pcids.give_back(pcid);
        }
    }

    /// This CPU runs the space of this `stamp`. If it has a PCID, this CPU uses that from now on, and holds nothing
    /// under it that INVLPGB has not flushed. False if it has none.
    pub(crate) fn follow(&self, stamp: Stamp) -> bool {
        let has_other_root = self.has_directories() && stamp.pcid().is_some() && self.look_for_root();
        if self.asid().is_shared() && !has_other_root {
            self.hardware.event(Event::AlreadyCurrent);
            return true;
        }
        self.load_shared(stamp)
    }

    /// Flushes all that is cached under `pcid`, on every CPU.
    pub(super) fn broadcast_pcid(&self, pcid: Pcid) {
        self.for_each_half(pcid, |half| self.hardware.invlpgb(Invlpgb::Single(half)));
        self.hardware.tlbsync();
    }

    /// Flushes a space as far as INVLPGB reaches it. [`Outcome::Complete`] if that is everywhere.
    pub(crate) fn broadcast(&self, stamp: Stamp, request: &Request<'_>) -> Outcome {
        if request.needs(Needs::GLOBAL) {
            return self.broadcast_all(Invlpgb::AllAndGlobals, request);
        }
        let Some(pcid) = stamp.pcid() else { return Outcome::NeedsShootdown };
        let tables = if request.needs(Needs::TABLES) { Tables::Freed } else { Tables::Kept };
        let named = self.without_reach(request);
        let is_singly = is_in_user_half(&named);
        self.for_each_half(pcid, |half| {
            if is_singly {
                self.for_each_piece(&named, |first, pages, stride| {
                    self.hardware.invlpgb(Invlpgb::Pages { pcid: half, first, pages, stride, tables });
                });
            } else {
                self.hardware.invlpgb(Invlpgb::Single(half));
            }
        });
        self.hardware.tlbsync();
        if stamp.is_moving() {
            return Outcome::NeedsShootdown;
        }
        self.end_broadcast(request)
    }

    /// Flushes kernel addresses, or what a batch holds of spaces that INVLPGB reaches.
    pub(crate) fn announce_by_broadcast(&self, request: &Request<'_>) -> Outcome {
        if let Extent::Loaded(_) = request.extent {
            return if request.needs(Needs::SHARED) {
                self.broadcast_all(Invlpgb::All, request)
            } else {
                Outcome::NeedsShootdown
            };
        }
        debug_assert!(request.space == SpaceId::KERNEL, "what is flushed belongs to no space");
        if request.needs(Needs::TABLES) || !is_in_kernel_half(request) {
            return self.broadcast_all(Invlpgb::AllAndGlobals, request);
        }
        self.for_each_piece(request, |first, pages, stride| {
            self.hardware.invlpgb(Invlpgb::PagesOfAll { first, pages, stride });
        });
        self.hardware.tlbsync();
        self.end_broadcast(request)
    }

    fn broadcast_all(&self, what: Invlpgb, request: &Request<'_>) -> Outcome {
        self.hardware.invlpgb(what);
        self.hardware.tlbsync();
        self.end_broadcast(request)
    }

    /// INVLPGB has flushed all that `request` names. CPUs that must respond in person ([`Needs::ANSWER`]) are still
    /// sent a request.
    fn end_broadcast(&self, request: &Request<'_>) -> Outcome {
        if request.needs(Needs::ANSWER) {
            return Outcome::NeedsShootdown;
        }
        self.assert_here(); // otherwise the TLBSYNC was another CPU's, which knows nothing of these INVLPGBs
        self.hardware.event(Event::FlushLocalDone);
        self.hardware.event(Event::FlushEnd);
        Outcome::Complete
    }

    /// Calls `f` with the PCID of each half that the space has.
    fn for_each_half(&self, pcid: Pcid, f: impl Fn(Pcid)) {
        f(pcid);
        if self.has_flag(flag::ISOLATED) {
            f(pcid.user_half());
        }
    }

    /// Calls `f` for as many pages of `request` as one instruction takes, until all have been named.
    fn for_each_piece(&self, request: &Request<'_>, f: impl Fn(VirtAddr, u32, Stride)) {
        let (stride, most) = match request.step {
            Step::PAGE_4K => (Stride::Page4K, self.broadcast_pages()),
            Step::PAGE_2M => (Stride::Page2M, self.broadcast_pages()),
            _ => (Stride::Page1G, 1),
        };
        let Extent::Range { start, mut pages } = request.extent else {
            return for_each_page_of(request, |va| f(va, 1, stride));
        };
        let mut first = start.0;
        while pages != 0 {
            let count = pages.min(most);
            f(VirtAddr(first), count, stride);
            first = first.wrapping_add(u64::from(count) << request.step.shift());
            pages -= count;
        }
    }

    fn broadcast_pages(&self) -> u32 {
        self.hardware.broadcast_pages().map_or(1, core::num::NonZeroU32::get)
    }

    /// Flushes the user half of a PCID that all CPUs share, on this CPU alone. Interrupts are off.
    #[cold]
    pub(crate) fn flush_shared_user_half(&self, asid: Asid) {
        if self.hardware.features().invpcid {
            self.hardware.invpcid(Invpcid::Single(asid.pcid().user_half()));
        } else {
            self.flush_all_and_globals(&IrqsOff::assume());
        }
    }
}

/// True if every page that a request names one by one lies in the kernel's half.
fn is_in_kernel_half(request: &Request<'_>) -> bool {
    match request.extent {
        Extent::Everything | Extent::Loaded(_) | Extent::Within(_) | Extent::List(_) => false,
        Extent::Range { start, pages } => {
            let bytes = u64::from(pages) << request.step.shift();
            start.0 >= KERNEL_START && start.0.checked_add(bytes - 1).is_some()
        }
    }
}
