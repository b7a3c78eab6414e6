//! Which space a CPU has loaded: the switch, lazy TLB mode, the kernel's own page tables.
//!
//! **The rule.** A CPU is in the CPU set of a space before it loads that space, and reads the space's generation
//! between the two. Entries of an ASID are kept over a switch only if its generation is the one that was read (INV-12).
//! Everything else is a CR3 write that flushes.
//!
//! An ASID names a space only while this CPU is in that space's CPU set (except under policies that keep the set
//! exact). So a switch to a recent space writes to no cache line of the space, and reads only the one of its
//! generation. The CPU joined the CPU set when the ASID was assigned. Linux no longer clears the bit at each switch
//! either, but still reads the cpumask.
//!
//! **The race** of a CPU that loads a space with a CPU that takes translations away is drawn in `space/mod.rs`. A CPU
//! that leaves lazy TLB mode loads nothing, and runs the same race without the CPU set (C-24):
//!
//! ```text
//!   CPU that leaves lazy TLB mode (leave_lazy)     initiator (flush/shootdown.rs)
//!   presence := switching                          change the PTE; advance the generation
//!   fence(SeqCst)                                  fence(SeqCst)
//!   read the generation                            read the presence
//! ```
//! Either the initiator sees the CPU on its way back and sends it an IPI, or the CPU sees the new generation and
//! flushes by itself.
//!
//! A space that many CPUs run may have a PCID which all of them share. Then a switch loads that one, keeps what the TLB
//! holds under it, and compares nothing: `space/shared.rs`.
//!
//! **Neighbours.** `isolation.rs` switches between the kernel half and the user half of one space. `space/end.rs` has
//! what a CPU owes to a space that dies while the CPU holds it lazily.

mod isolation;

use crate::addr::{PhysAddr, SpaceToken};
use crate::cpu::asid::Asid;
use crate::cpu::state::Presence;
use crate::cpu::{CHECKED, Cpu, flag};
use crate::hardware::{Cr3, Event, Hardware, IrqsOff, Pcid};
use crate::policy::history::ENABLED;
use crate::space::cpu_set::AtomicCpuSet;
use crate::space::shared::Stamp;
use crate::space::{AddressSpace, Generation};
use crate::sync::{Ordering, fence};

/// Why a CPU leaves a space for the kernel's own page tables: its kernel says so, or a request of another CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Kernel,
    Request,
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Loads `to`, the space of the task that runs next (Linux: `switch_mm_irqs_off`). Does nothing if the space is
    /// loaded and running already.
    ///
    /// # Panics
    /// If this CPU was not brought up. With debug assertions also if interrupts are on, if `to` has ended, or if CR3
    /// is not what the library wrote there last, as far as [`Hardware::cr3`] can tell.
    #[inline(always)]
    pub fn switch_to(&self, to: &AddressSpace<H::Set>, irqs: &IrqsOff) {
        self.assert_here();
        let left = self.presence();
        if left == Presence::running(to.id) {
            return;
        }
        if left == Presence::lazy(to.id) {
            return self.leave_lazy(to);
        }
        if CHECKED {
            self.check_switch(to);
        }
        if self.has_flag(flag::LEAVING_WORK) {
            return self.switch_and_finish_leaving(left, to, irqs);
        }
        self.switch(to);
    }

    fn assert_brought_up(&self) {
        assert!(!self.presence().is_absent(), "CPU {} runs a space, and was not brought up", self.id.0);
    }

    /// What a debug build checks of a switch to another space.
    #[cold]
    fn check_switch(&self, to: &AddressSpace<H::Set>) {
        self.check_irqs_off();
        assert!(!to.references.is_dying(), "a switch to a space that has ended");
        self.assert_brought_up();
        let root = PhysAddr(self.state.root.get());
        let pcid = if self.presence() == Presence::KERNEL { Pcid::KERNEL } else { self.asid().pcid() };
        let expected = Cr3(Cr3::flushing(root, pcid).0 & self.state.cr3_mask.get());
        if let Some(found) = self.hardware.cr3() {
            let is_ours = (found.root(), found.pcid()) == (expected.root(), expected.pcid());
            assert!(is_ours, "CR3 is {:#x}, and the library wrote {:#x}: who else loads it?", found.0, expected.0);
        }
    }

    /// Switches by the shortest way. For a recent space, whose ASID the hint leads to, there is nothing to join and
    /// nothing to look for.
    #[inline(always)]
    fn switch(&self, to: &AddressSpace<H::Set>) {
        if self.has_broadcast() && to.stamp().pcid().is_some() {
            return self.switch_to_shared(to);
        }
        let hint = self.state.asids.hint(to.id);
        match self.state.asids.recall(hint, to.id) {
            Some(asid) => {
                if self.has_flag(flag::LEAST_RECENT) {
                    self.state.asids.touch(asid);
                }
                self.enter(asid, to);
            }
            None if hint.is_without_pcid() => self.switch_without_pcid(to),
            None if hint.is_shared() => self.switch_by_search(to),
            None => self.switch_to_new(to),
        }
    }

    /// Two recent spaces share a hint, and it leads to the other one. If the search finds an ASID, it corrects the
    /// hint.
    fn switch_by_search(&self, to: &AddressSpace<H::Set>) {
        self.assert_brought_up();
        match self.state.asids.search(to.id) {
            Some(_) => self.switch(to),
            None => self.switch_to_new(to),
        }
    }

    /// The switch to a space that has no ASID here, so that one has to be recycled.
    fn switch_to_new(&self, to: &AddressSpace<H::Set>) {
        to.cpus().join(self.id);
        let asids = &self.state.asids;
        let asid = if self.has_flag(flag::LEAST_RECENT) {
            let asid = asids.recycle_by_use(to.id);
            asids.touch(asid);
            asid
        } else {
            asids.recycle_in_turn(to.id)
        };
        self.enter(asid, to);
    }

    /// The switch to a space that has a shared PCID: it needs no ASID of this CPU.
    fn switch_to_shared(&self, to: &AddressSpace<H::Set>) {
        to.cpus().join(self.id);
        self.enter(Asid::ONLY, to);
    }

    /// The switch under a policy by which a CPU has something to do for the space that it has left, or for the kernel's
    /// CPU set, once CR3 no longer names that.
    #[inline(never)]
    fn switch_and_finish_leaving(&self, left: Presence, to: &AddressSpace<H::Set>, irqs: &IrqsOff) {
        let left_token = self.loaded_token();
        if self.has_flag(flag::EXACT_SET) {
            to.cpus().join(self.id);
        }
        self.switch(to);
        self.finish_leaving(left, left_token, irqs);
    }

    /// The switch of a CPU without PCIDs. The CR3 write drops everything that the only ASID named, so there is nothing
    /// to look for, and no user half to mark.
    #[inline(never)]
    fn switch_without_pcid(&self, to: &AddressSpace<H::Set>) {
        to.cpus().join(self.id);
        let stamp = self.announce_switch(to);
        if self.is_noticed() {
            self.state.asids.assign_only(to.id, Generation::NEVER);
            return self.enter_noticed(Asid::ONLY, to, stamp);
        }
        self.state.asids.assign_only(to.id, self.generation_in(stamp));
        let root = self.record_loaded(to);
        self.hardware.write_cr3(Cr3(root.0));
        self.hardware.event(Event::SwitchFlushed);
        // Release: as in `enter`.
        self.set_presence(Presence::running(to.id), Ordering::Release);
    }

    /// Loads `to` under `asid`: the joiner's side of INV-2, drawn in `space/mod.rs`. This CPU is in the CPU set.
    ///
    /// Entries are kept only if the ASID's generation is the newest, read after joining (INV-12). Otherwise the same
    /// CR3 write flushes them, and those of the user half are flushed at the next return to user mode (INV-10). A space
    /// that is found to have a shared PCID is loaded under that one instead.
    #[inline(always)]
    fn enter(&self, asid: Asid, to: &AddressSpace<H::Set>) {
        let stamp = self.announce_switch(to);
        if self.is_noticed() {
            return self.enter_noticed(asid, to, stamp);
        }
        self.load(asid, to, stamp);
        // Release: CR3 names the new space before an initiator can see that the old one was left; partners are the
        // Acquire loads in `choose_by` and in `holds_lazily`.
        self.set_presence(Presence::running(to.id), Ordering::Release);
    }

    /// [`enter`](Self::enter) on a CPU that has found a notice: the space that it leaves may be dying, and then it
    /// holds a reference to it, which it drops once CR3 names other page tables (`space/end.rs`).
    #[cold]
    fn enter_noticed(&self, asid: Asid, to: &AddressSpace<H::Set>, stamp: Stamp) {
        self.state.notice.clear();
        let was_in_space = self.state.root.get() != self.tlb.kernel_root.0;
        let left = self.loaded_token();
        self.load(asid, to, stamp);
        let is_last = was_in_space && self.drop_reference(left);
        // Release: as in `enter`; besides, the space that was left is not touched any more.
        self.set_presence(Presence::running(to.id), Ordering::Release);
        if is_last {
            self.hardware.event(Event::LastLazyReference(left));
        }
    }

    /// From here on this CPU is a responder of every flush whose CPU set it is in. Returns the newest stamp of `to`.
    #[inline(always)]
    fn announce_switch(&self, to: &AddressSpace<H::Set>) -> Stamp {
        // Relaxed: ordered by the fence below. Not `running` yet: an NMI must not take what is stale for usable (C-54).
        self.set_presence(Presence::SWITCHING, Ordering::Relaxed);
        // SeqCst: partners are the fences in `AddressSpace::advance` and in `notify_holders`.
        fence(Ordering::SeqCst);
        to.stamp()
    }

    /// True if a destroyer has posted a notice: the space that is left may be dying. If the policy never posts
    /// notices, the load returns 0 and is cheaper than testing the policy. With `history` the policy is tested first,
    /// so that the simulator does not count the load.
    #[inline(always)]
    fn is_noticed(&self) -> bool {
        (!ENABLED || self.has_flag(flag::AWAITED)) && self.state.notice.is_posted()
    }

    #[inline(always)]
    fn load(&self, asid: Asid, to: &AddressSpace<H::Set>, stamp: Stamp) {
        self.state.asid.set(asid.0);
        let root = self.record_loaded(to);
        if self.has_broadcast() && self.load_shared(stamp) {
            return self.hardware.event(Event::SwitchKept);
        }
        let newest = self.generation_in(stamp);
        if self.state.asids.generation(asid) == newest {
            self.load_keeping(root, asid);
            self.hardware.event(Event::SwitchKept);
        } else {
            self.load_flushing(asid, root, newest);
            self.hardware.event(Event::SwitchFlushed);
        }
    }

    /// Loads the space whose top-level table was recorded under the PCID in its `stamp`; false if it has none.
    pub(crate) fn load_shared(&self, stamp: Stamp) -> bool {
        let Some(pcid) = stamp.pcid() else { return false };
        let asid = Asid::of_shared(pcid);
        self.state.asid.set(asid.0);
        self.load_keeping(PhysAddr(self.state.root.get()), asid);
        true
    }

    #[inline(always)]
    fn record_loaded(&self, to: &AddressSpace<H::Set>) -> PhysAddr {
        let root = self.hardware.root_here(to);
        self.state.token.set(to.token.0);
        self.state.root.set(root.0);
        root
    }

    #[inline(always)]
    fn load_flushing(&self, asid: Asid, root: PhysAddr, newest: Generation) {
        self.state.pending_user.set(self.state.pending_user.get() | 1 << asid.0);
        self.state.asids.set_generation(asid, newest);
        self.load_cr3(Cr3::flushing(root, asid.pcid()));
    }

    #[cold]
    fn finish_leaving(&self, left: Presence, token: SpaceToken, _irqs: &IrqsOff) {
        if left == Presence::KERNEL {
            return self.leave_kernel_set();
        }
        // A space that was left lazily may be freed by now, unless it is counted: `space/end.rs`.
        if !self.has_flag(flag::EXACT_SET | flag::LAZY_COUNTED) || left.is_lazy() && self.has_flag(flag::AWAITED) {
            return;
        }
        self.with_space_of(token, |space| {
            if self.has_flag(flag::EXACT_SET) {
                // Release: CR3 was left before (C-06); partner is the fence in `advance`, after which the set is read.
                space.cpus().remove(self.id, Ordering::Release);
            }
            if left.is_lazy() {
                self.uncount_lazy(space);
            }
        });
    }
}

/// Lazy TLB mode.
impl<H: Hardware> Cpu<'_, '_, H> {
    /// The idle task or a kernel thread runs next (Linux: `enter_lazy_tlb`): the user space stays loaded, unused. All
    /// that is written is this CPU's presence. Does nothing if the kernel's own page tables are loaded, or if the CPU
    /// is in lazy TLB mode already.
    #[inline]
    pub fn enter_lazy(&self, irqs: &IrqsOff) {
        self.assert_here();
        self.check_irqs_off();
        if self.has_flag(flag::ENTER_LAZY_WORK) {
            if self.has_flag(flag::NOT_LAZY) {
                return self.load_kernel(irqs);
            }
            self.count_lazy();
        }
        // Release: the program's accesses are over before an initiator may leave this CPU alone; partner is the Acquire
        // load in `choose_by`.
        self.set_presence(self.presence().as_lazy(), Ordering::Release);
    }

    /// Leaves lazy TLB mode for the same space. It is still loaded: all that is needed is to be seen, then to look.
    fn leave_lazy(&self, to: &AddressSpace<H::Set>) {
        let stamp = self.announce_switch(to);
        if self.has_broadcast() && self.asid().is_shared() {
            return self.leave_lazy_shared(to);
        }
        let newest = self.generation_in(stamp);
        if self.has_flag(flag::LAZY_COUNTED) || self.state.asids.generation(self.asid()) != newest {
            return self.leave_lazy_stale(to, newest);
        }
        // Relaxed: to an initiator this CPU is a responder before and after.
        self.set_presence(Presence::running(to.id), Ordering::Relaxed);
    }

    /// The same for a space that is loaded under a shared PCID: what was held under that one is current.
    fn leave_lazy_shared(&self, to: &AddressSpace<H::Set>) {
        self.uncount_lazy(to);
        // Relaxed: as in `leave_lazy`.
        self.set_presence(Presence::running(to.id), Ordering::Relaxed);
    }

    fn leave_lazy_stale(&self, to: &AddressSpace<H::Set>, newest: Generation) {
        self.uncount_lazy(to);
        if self.state.asids.generation(self.asid()) != newest {
            let (asid, root) = (self.asid(), self.hardware.root_here(to));
            if self.has_directories() {
                self.state.root.set(root.0); // another one than was left, after `reload_roots`
            }
            self.load_flushing(asid, root, newest);
        }
        // Relaxed: as in `leave_lazy`.
        self.set_presence(Presence::running(to.id), Ordering::Relaxed);
    }
}

/// The kernel's own page tables, and other uses of a space than a switch of tasks.
impl<H: Hardware> Cpu<'_, '_, H> {
    /// Loads the kernel's own page tables (Linux: `leave_mm`): before deep idle, or to go offline.
    pub fn load_kernel(&self, irqs: &IrqsOff) {
        self.leave_for_kernel(Cause::Kernel, irqs);
    }

    /// [`load_kernel`](Self::load_kernel) because a request of another CPU says so: this CPU holds in lazy TLB mode
    /// what is being freed.
    pub(crate) fn leave_on_request(&self, irqs: &IrqsOff) {
        self.leave_for_kernel(Cause::Request, irqs);
    }

    fn leave_for_kernel(&self, cause: Cause, irqs: &IrqsOff) {
        self.assert_here();
        self.check_irqs_off();
        let left = self.presence();
        if left == Presence::KERNEL {
            return;
        }
        let token = self.loaded_token();
        // Relaxed: until its presence is KERNEL this CPU stays a responder of the space; ordered by the Release below.
        self.set_presence(Presence::SWITCHING, Ordering::Relaxed);
        let is_noticed = left.is_lazy() && self.has_flag(flag::AWAITED) && self.take_notice();
        let root = self.tlb.kernel_root;
        if self.state.kernel_pcid_stale.get() == 0 {
            self.load_cr3(Cr3::keeping(root, Pcid::KERNEL));
        } else {
            self.state.kernel_pcid_stale.set(0);
            self.load_cr3(Cr3::flushing(root, Pcid::KERNEL));
        }
        self.state.root.set(root.0);
        if cause == Cause::Request {
            // CR3 names the kernel's page tables by now, and the reference is dropped later, as the space may end then.
            self.hardware.event(Event::LazyLeft(token));
        }
        self.join_kernel_set();
        let is_last = is_noticed && self.drop_reference(token);
        // Release: CR3 names the kernel's page tables before an initiator can see it; partners are the Acquire loads in
        // `choose_by` and in `holds_lazily`.
        self.set_presence(Presence::KERNEL, Ordering::Release);
        if is_last {
            self.hardware.event(Event::LastLazyReference(token));
        }
        if self.has_flag(flag::LEAVING_WORK) {
            self.finish_leaving(left, token, irqs);
        }
    }

    /// What CR3 holds now, while the kernel half is loaded, without the no-flush bit: for code that has to write CR3
    /// again, or hand it to the entry of a guest. Interrupts off.
    #[must_use]
    pub fn loaded(&self, _irqs: &IrqsOff) -> Cr3 {
        self.assert_here();
        let root = PhysAddr(self.state.root.get());
        let pcid = if self.presence() == Presence::KERNEL { Pcid::KERNEL } else { self.asid().pcid() };
        Cr3(Cr3::flushing(root, pcid).0 & self.state.cr3_mask.get())
    }

    /// Runs `f` with `space` loaded (Linux: `use_temporary_mm`), then goes back to the space that was running. A space
    /// that was held lazily is not loaded again, since it may die meanwhile.
    pub fn with_space<R>(&self, space: &AddressSpace<H::Set>, irqs: &IrqsOff, f: impl FnOnce() -> R) -> R {
        self.assert_here();
        let left = self.presence();
        if left == Presence::running(space.id) {
            return f();
        }
        let token = self.loaded_token();
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

/// What a CPU owes to a space that dies while the CPU holds it in lazy TLB mode: its side of the race in
/// `space/end.rs`.
impl<H: Hardware> Cpu<'_, '_, H> {
    /// Takes the notice that a destroyer may have left. This CPU leaves a space that it held lazily, and its presence
    /// says that it is switching.
    pub(crate) fn take_notice(&self) -> bool {
        // SeqCst: partner is the fence in `notify_holders`; the diagram is in `space/end.rs`.
        fence(Ordering::SeqCst);
        let is_noticed = self.state.notice.is_posted();
        if is_noticed {
            self.state.notice.clear();
        }
        is_noticed
    }

    /// This CPU, which found a notice, has left the space called `token`: CR3 names other tables, and its presence
    /// still says that it is switching. True if the space was dying and this was the last reference to it: then the
    /// kernel has to be notified, and nobody touches the space any more.
    #[cold]
    pub(crate) fn drop_reference(&self, token: SpaceToken) -> bool {
        // Relaxed: the bit only decides who drops the reference; what this CPU did in the space is ordered by the
        // count.
        let leaves = |set: AtomicCpuSet<'_>| set.remove(self.id, Ordering::Relaxed);
        self.with_space_of(token, |space| {
            let is_last = space.references.is_dying() && leaves(space.cpus()) && space.references.remove(1);
            if is_last {
                self.give_pcid_back(space);
            }
            is_last
        })
    }
}
