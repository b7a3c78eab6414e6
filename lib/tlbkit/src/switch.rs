//! Which space a CPU has loaded: switching, lazy mode, the kernel's tables, temporary use of a foreign space.
//!
//! A slot names a space only while this CPU is in the space's set (unless the set is exact). So a switch to a
//! recent space touches no shared line but the space's generation, which it reads: the set was written when the
//! slot was taken.
//!
//! The race of a lazy CPU that comes back (C-24):
//!
//! ```text
//!   lazy CPU (leave_lazy)                     initiator (shootdown.rs)
//!   presence := switching                     change PTE; advance generation
//!   fence(SeqCst)                             fence(SeqCst)
//!   read generation                           read presence
//! ```
//! Either the initiator finds it on its way back and interrupts it, or it sees the new generation and flushes by
//! itself.

use crate::addr::{PhysAddr, SpaceToken};
use crate::address_space::{AddressSpace, Generation, SpaceId};
use crate::asid::{Asid, Slots};
use crate::cpu_state::Presence;
use crate::hardware::{Cr3, Event, Hardware, IrqsOff, Pcid};
use crate::references::Notice;
use crate::sync::{Ordering, fence};
use crate::tlb::{Cpu, flag};

/// Who wants this CPU to leave a space for the kernel's own tables: the kernel on it, or a request of another CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Own,
    AnothersRequest,
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Loads `to`, for a task of its own that runs next. Nothing to do if it is loaded and running.
    #[inline(always)]
    pub fn switch_to(&self, to: &AddressSpace<H::Set>, irqs: &IrqsOff) {
        self.assert_here();
        let (left, id) = (self.presence(), to.id);
        if left == Presence::running(id) {
            return;
        }
        if left == Presence::lazy(id) {
            return self.leave_lazy(to, id);
        }
        self.switch_between(left, to, irqs);
    }

    /// Idle or a kernel thread runs next: the user space stays loaded, unused; no shared line is written but this
    /// CPU's.
    #[inline]
    pub fn enter_lazy(&self, irqs: &IrqsOff) {
        self.assert_here();
        if self.has_flag(flag::ENTER_LAZY) {
            return self.enter_lazy_with_work(irqs);
        }
        self.become_lazy();
    }

    /// Changes nothing for the kernel's own tables, nor for a space that is lazy already.
    #[inline(always)]
    fn become_lazy(&self) {
        // Release: the program's accesses are over before an initiator may skip this CPU; partner is the Acquire in
        // `first_asked`.
        self.set_presence(self.presence().as_lazy(), Ordering::Release);
    }

    #[cold]
    fn enter_lazy_with_work(&self, irqs: &IrqsOff) {
        if self.has_flag(flag::NOT_LAZY) {
            return self.load_kernel(irqs);
        }
        self.keep_lazily();
        self.become_lazy();
    }

    /// The space is still loaded: all that is needed is to be seen, then to look (INV-2).
    #[inline(always)]
    fn leave_lazy(&self, to: &AddressSpace<H::Set>, id: SpaceId) {
        // Relaxed: ordered by the fence below. Not running yet: an NMI must not take what is stale for usable (C-54).
        self.set_presence(Presence::SWITCHING, Ordering::Relaxed);
        // SeqCst: partner is the fence in `AddressSpace::advance`; the diagram above.
        fence(Ordering::SeqCst);
        let newest = to.generation();
        if self.has_flag(flag::COUNTED) || self.state.slots.generation(self.asid()) != newest {
            return self.leave_lazy_with_work(to, newest);
        }
        // Relaxed: to an initiator this CPU is a responder before and after.
        self.set_presence(Presence::running(id), Ordering::Relaxed);
    }

    /// Out of line as a whole, so that a switch that does nothing saves no register for it.
    #[inline(never)]
    fn leave_lazy_with_work(&self, to: &AddressSpace<H::Set>, newest: Generation) {
        self.let_go(to);
        if self.state.slots.generation(self.asid()) != newest {
            self.reload(to, newest);
        }
        // Relaxed: as in `leave_lazy`.
        self.set_presence(Presence::running(to.id), Ordering::Relaxed);
    }

    /// Loads the loaded space's tables again and drops all that its tag holds.
    #[cold]
    pub(crate) fn reload(&self, space: &AddressSpace<H::Set>, newest: Generation) {
        let asid = self.asid();
        self.state.pending_user.set(self.state.pending_user.get() | 1 << asid.0);
        self.state.slots.set_generation(asid, newest);
        self.load_cr3(Cr3::flushing(space.root, asid.pcid()));
    }

    /// The common path: a recent space whose slot the hint knows, under a policy that owes nothing to the space left.
    #[inline(always)]
    fn switch_between(&self, left: Presence, to: &AddressSpace<H::Set>, irqs: &IrqsOff) {
        let (running, hint) = (Presence::running(to.id), self.state.slots.hint(to.id));
        let Some(asid) = self.state.slots.recall_by(hint, to.id) else {
            let is_untagged = hint.is_untagged();
            return if is_untagged { self.switch_without_tags(to) } else { self.switch_unhinted(left, to, irqs) };
        };
        if self.has_flag(flag::KNOWN_SLOT) {
            if self.has_flag(flag::SWITCH) {
                return self.switch_with_work(left, to, irqs);
            }
            self.state.slots.touch(asid);
        }
        self.enter(asid, to, running);
    }

    /// A new slot, or one whose hint was taken by another space. It only says where to go on, so it saves no register.
    #[inline(never)]
    fn switch_unhinted(&self, left: Presence, to: &AddressSpace<H::Set>, irqs: &IrqsOff) {
        if self.has_flag(flag::SWITCH) {
            return self.switch_with_work(left, to, irqs);
        }
        if self.state.slots.hint(to.id).is_sure() {
            return self.switch_anew(to);
        }
        self.switch_searched(to);
    }

    /// Its own slot, which stands elsewhere than its hint says, or a new one.
    #[inline(never)]
    fn switch_searched(&self, to: &AddressSpace<H::Set>) {
        let Some(asid) = self.state.slots.search(to.id) else { return self.switch_anew(to) };
        if self.has_flag(flag::LEAST_RECENT) {
            self.state.slots.touch(asid);
        }
        self.enter(asid, to, Presence::running(to.id));
    }

    /// A new slot.
    #[inline(never)]
    fn switch_anew(&self, to: &AddressSpace<H::Set>) {
        self.join(to);
        let slots = &self.state.slots;
        let asid = if self.has_flag(flag::LEAST_RECENT) {
            let asid = slots.take_oldest(to.id);
            slots.touch(asid);
            asid
        } else {
            slots.take_in_turn(to.id)
        };
        self.enter(asid, to, Presence::running(to.id));
    }

    /// The only slot goes to `to`, and the CR3 write drops all that it held: there is nothing to search for, and no
    /// user half to mark. The handshake is that of [`enter`](Self::enter).
    #[inline(never)]
    fn switch_without_tags(&self, to: &AddressSpace<H::Set>) {
        self.join(to);
        let joined = self.begin_entry(to).joined_to(self.state.notice.read());
        if joined.has_notice() {
            self.state.slots.take_only(to.id, Generation::NEVER);
            return self.enter_noticed(Asid::ONLY, to, joined);
        }
        self.state.slots.take_only(to.id, joined);
        self.note_root(to);
        self.hardware.write_cr3(Cr3(to.root.0));
        self.hardware.event(Event::SwitchFlushed);
        // Release: as in `finish_entry`. The id is the slot's now, and need not be kept over the load.
        self.set_presence(Presence::running(self.state.slots.only_id()), Ordering::Release);
    }

    /// All the others: an exact set, and what older kernels owe.
    #[inline(never)]
    fn switch_with_work(&self, left: Presence, to: &AddressSpace<H::Set>, irqs: &IrqsOff) {
        let token = SpaceToken(self.state.token.get());
        if self.has_flag(flag::EXACT_SET) {
            self.join(to);
        }
        let asid = self.slot_of(to);
        let newest = self.begin_entry(to);
        let looks = self.has_flag(flag::AWAITED);
        let notice = if looks { self.state.notice.read() } else { Notice::NONE };
        self.finish_entry(asid, to, newest.joined_to(notice), Presence::running(to.id));
        self.after_leaving(left, token, irqs);
    }

    /// The slot of `to`, known or new, which is the one used last from now on.
    fn slot_of(&self, to: &AddressSpace<H::Set>) -> Asid {
        let slots = &self.state.slots;
        let is_by_use = self.has_flag(flag::LEAST_RECENT);
        let take = if is_by_use { Slots::take_oldest } else { Slots::take_in_turn };
        let asid = slots.recall(to.id).or_else(|| slots.find(to.id)).unwrap_or_else(|| {
            self.join(to);
            take(slots, to.id)
        });
        if is_by_use {
            slots.touch(asid);
        }
        asid
    }

    #[inline(always)]
    fn join(&self, to: &AddressSpace<H::Set>) {
        to.cpus().join(self.id);
    }

    /// The handshake of INV-2, joiner's side; the diagram is in `address_space.rs`.
    ///
    /// No-flush only for a slot whose generation is current, read after joining (INV-12). A slot with a generation that
    /// is older, or none, is flushed by the same CR3 write; its user half at the next return to user mode (INV-10).
    #[inline(always)]
    fn enter(&self, asid: Asid, to: &AddressSpace<H::Set>, running: Presence) {
        let newest = self.begin_entry(to);
        self.finish_entry(asid, to, newest.joined_to(self.state.notice.read()), running);
    }

    /// Loads the slot; `newest` is joined to the notice that was found. A notice makes a generation that no slot has,
    /// so one comparison asks for both.
    #[inline(always)]
    fn finish_entry(&self, asid: Asid, to: &AddressSpace<H::Set>, newest: Generation, running: Presence) {
        if self.state.slots.generation(asid) == newest {
            self.keep_slot(asid, to);
        } else if newest.has_notice() {
            return self.enter_noticed(asid, to, newest);
        } else {
            self.flush_slot(asid, to, newest);
        }
        // Release: CR3 names the new space before an initiator can see that the old one was left; partners are the
        // Acquire in `first_asked` and in `settled_presence`.
        self.set_presence(running, Ordering::Release);
    }

    /// Announces the switch, then reads the generation of the space that it leads to.
    #[inline(always)]
    fn begin_entry(&self, to: &AddressSpace<H::Set>) -> Generation {
        // Relaxed: ordered by the fence below. From here on this CPU is a responder for whatever set it is in.
        self.set_presence(Presence::SWITCHING, Ordering::Relaxed);
        // SeqCst: partners are the fences in `AddressSpace::advance` and in `notify_holders`.
        fence(Ordering::SeqCst);
        to.generation()
    }

    /// The end of [`enter`](Self::enter) for a CPU that has found a notice, which is `joined` to the newest generation.
    #[cold]
    #[inline(never)]
    fn enter_noticed(&self, asid: Asid, to: &AddressSpace<H::Set>, joined: Generation) {
        self.state.notice.clear();
        let newest = joined.without_notice();
        let was_in_space = self.state.root.get() != self.tlb.kernel_root.0;
        let left = SpaceToken(self.state.token.get());
        if self.state.slots.generation(asid) == newest {
            self.keep_slot(asid, to);
        } else {
            self.flush_slot(asid, to, newest);
        }
        let is_last = was_in_space && self.give_back(left);
        // Release: as in `enter`; besides, the space that was left is not touched any more.
        self.set_presence(Presence::running(to.id), Ordering::Release);
        if is_last {
            self.hardware.event(Event::LastLazyReference(left));
        }
    }

    #[inline(always)]
    fn keep_slot(&self, asid: Asid, to: &AddressSpace<H::Set>) {
        self.note_loaded(asid, to);
        self.load_keeping(to.root, asid);
        self.hardware.event(Event::SwitchKept);
    }

    #[inline(always)]
    fn flush_slot(&self, asid: Asid, to: &AddressSpace<H::Set>, newest: Generation) {
        self.note_loaded(asid, to);
        self.state.pending_user.set(self.state.pending_user.get() | 1 << asid.0);
        self.state.slots.set_generation(asid, newest);
        self.load_cr3(Cr3::flushing(to.root, asid.pcid()));
        self.hardware.event(Event::SwitchFlushed);
    }

    #[inline(always)]
    fn note_loaded(&self, asid: Asid, to: &AddressSpace<H::Set>) {
        self.state.asid.set(asid.0);
        self.note_root(to);
    }

    #[inline(always)]
    fn note_root(&self, to: &AddressSpace<H::Set>) {
        self.state.token.set(to.token.0);
        self.state.root.set(to.root.0);
    }

    /// What the policy owes the space (or the kernel's set) that CR3 no longer names.
    #[cold]
    fn after_leaving(&self, left: Presence, token: SpaceToken, _irqs: &IrqsOff) {
        if left == Presence::KERNEL {
            return self.leave_kernel_set();
        }
        // A space that is left lazily may be freed by now, unless it is counted: `leave.rs`.
        if !self.has_flag(flag::EXACT_SET | flag::COUNTED) || left.is_lazy() && self.has_flag(flag::AWAITED) {
            return;
        }
        self.with_space_of(token, |space| {
            if self.has_flag(flag::EXACT_SET) {
                // Release: CR3 was left before (C-06); partner is the fence in `advance`, after which the set is read.
                space.cpus().remove(self.id, Ordering::Release);
            }
            if left.is_lazy() {
                self.let_go(space);
            }
        });
    }

    /// Loads the kernel's own tables: deep idle, offline, or a request to a lazy CPU that must leave.
    pub fn load_kernel(&self, irqs: &IrqsOff) {
        self.leave_for_kernel(Wish::Own, irqs);
    }

    /// Loads the kernel's own tables, and tells the kernel if it did not ask for that: when CR3 names them, and before
    /// this CPU gives a reference to the space back, as the space may end afterwards.
    #[inline(never)]
    fn leave_for_kernel(&self, wish: Wish, irqs: &IrqsOff) {
        self.assert_here();
        let left = self.presence();
        if left == Presence::KERNEL {
            return;
        }
        let token = SpaceToken(self.state.token.get());
        // Relaxed: until it is KERNEL this CPU stays a responder of the space; ordered by the Release below.
        self.set_presence(Presence::SWITCHING, Ordering::Relaxed);
        let is_owing = left.is_lazy() && self.has_flag(flag::AWAITED) && self.is_noticed();
        let root = self.tlb.kernel_root;
        if self.state.kernel_tag_stale.get() == 0 {
            self.load_cr3(Cr3::keeping(root, Pcid::KERNEL));
        } else {
            self.state.kernel_tag_stale.set(0);
            self.load_cr3(Cr3::flushing(root, Pcid::KERNEL));
        }
        self.state.root.set(root.0);
        if wish == Wish::AnothersRequest {
            self.hardware.event(Event::LazyLeft(token));
        }
        self.join_kernel_set();
        let is_last = is_owing && self.give_back(token);
        // Release: CR3 names the kernel's tables before an initiator can see it; partners are the Acquire in
        // `first_asked` and in `settled_presence`.
        self.set_presence(Presence::KERNEL, Ordering::Release);
        if is_last {
            self.hardware.event(Event::LastLazyReference(token));
        }
        if self.has_flag(flag::SWITCH) {
            self.after_leaving(left, token, irqs);
        }
    }

    /// What CR3 holds now, while the kernel half is loaded, without the no-flush bit: for whoever must write it again,
    /// or hand it to a guest's entry. Interrupts off.
    #[must_use]
    pub fn loaded(&self, _irqs: &IrqsOff) -> Cr3 {
        self.assert_here();
        let root = PhysAddr(self.state.root.get());
        let pcid = if self.presence() == Presence::KERNEL { Pcid::KERNEL } else { self.asid().pcid() };
        Cr3(Cr3::flushing(root, pcid).0 & self.state.cr3_mask.get())
    }

    /// Another CPU's request makes this one leave the space that it holds lazily.
    pub(crate) fn be_made_to_leave(&self, irqs: &IrqsOff) {
        self.leave_for_kernel(Wish::AnothersRequest, irqs);
    }

    /// Runs `f` with `space` loaded, then goes back to the space that was running; a space that was held lazily is not
    /// loaded again, since it may die meanwhile.
    pub fn with_space<R>(&self, space: &AddressSpace<H::Set>, irqs: &IrqsOff, f: impl FnOnce() -> R) -> R {
        self.assert_here();
        let left = self.presence();
        if left == Presence::running(space.id) {
            return f();
        }
        let token = SpaceToken(self.state.token.get());
        self.switch_to(space, irqs);
        let result = f();
        if left == Presence::KERNEL || left.is_lazy() {
            self.load_kernel(irqs);
        } else {
            self.with_space_of(token, |space| self.switch_to(space, irqs));
        }
        result
    }
}
