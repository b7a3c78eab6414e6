//! How a space ends while CPUs still hold it in lazy TLB mode.
//!
//! **The rule.** The page tables of a space are freed only after the last CPU has left them. No task runs a dying space
//! any more, but a CPU that went idle in it still has it in CR3, and walks its tables whenever it likes (C-20, C-25).
//! [`LazyReferences`] says what becomes of such CPUs. `ShotDown`: they get an IPI and leave at once. `Awaited`, the
//! default: they are left alone, and the last one that leaves by itself reports it. Nothing is counted until the space
//! dies, so going idle costs nothing.
//!
//! **The race** under `Awaited`. The destroyer counts the CPUs that hold the space, leaves each of them a notice, and
//! looks again:
//!
//! ```text
//!   CPU that leaves (switch/mod.rs)                destroyer (end_awaited)
//!                                                  take out of the CPU set all that are not seen lazy in the space
//!                                                  references := dying + those that are left + 1
//!   presence := switching                          leave each of them a notice
//!   fence(SeqCst)                                  fence(SeqCst)
//!   read the notice; if there is none, go on       read the presence of each; while it says switching, read again
//!   load CR3                                       lazy in the space: it will find the notice. Anything else: it may
//!   if there was a notice, and the space dies:       have found none, so take its bit out of the CPU set, and drop
//!     take its own bit out of the CPU set            its reference if the bit was still there
//!     drop its reference          (AcqRel)         drop the destroyer's own reference     (AcqRel)
//!   presence := the next space    (Release)
//!   report it, if that was the last reference
//! ```
//! Each side writes, then reads what the other side writes, with a fence in between: either the destroyer sees that the
//! CPU is leaving, or the CPU sees the notice and that the space dies. Both may happen. Then the bit in the CPU set
//! decides, since only one of them takes it out: that one drops the reference, so it is dropped once. A CPU that sees
//! the space dying has been counted: had the destroyer seen it anywhere else before it counted, the switch of that CPU
//! would be over.
//!
//! Nobody touches the space too late. A CPU touches it only while its presence says switching, or while the reference
//! that it drops is still counted; a destroyer waits while it sees a member of the CPU set switching. That wait is
//! short, because a switch runs with interrupts off and waits for nobody. (A CPU that was stopped in one is named, as
//! in every wait: `flush/wait.rs`.) For the same reason a CPU that leaves a space which it held lazily does not write
//! the CPU set afterwards, even under a policy that keeps the set exact: it stays a member until it has run the space
//! again.
//!
//! **Not promised:** when. A CPU that sleeps keeps the page tables of at most one dead space until it wakes up.

use super::cpu_set::{for_each_cpu, split};
use super::{AddressSpace, Destroyed, Translations};
use crate::addr::CpuId;
use crate::cpu::state::Presence;
use crate::cpu::{Cpu, flag};
use crate::flush::request::{Needs, Request};
use crate::flush::wait::Waited;
use crate::hardware::{Hardware, IrqsOff};
use crate::policy::Reason;
use crate::policy::history::choices::LazyReferences;
use crate::sync::{Ordering, fence};

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Ends `space`: no task runs it any more, on any CPU, and none ever will. This CPU may hold it in lazy TLB mode.
    ///
    /// [`Destroyed::Now`]: no CPU has it loaded or touches it, and everything can be freed.
    /// [`Destroyed::WhenUnreferenced`]: some CPU still holds it lazily. The space and its page tables must live until
    /// [`Event::LastLazyReference`](crate::Event) names it, on whatever CPU; that may happen before this call returns.
    ///
    /// Under [`LazyReferences::ShotDown`] it interrupts the CPUs that hold the space, waits for them, and always
    /// returns `Now`. Under any other choice it is [`destroy_later`](Self::destroy_later).
    ///
    /// # Panics
    /// As `destroy_later`; under `ShotDown` also if a CPU must be waited for and interrupts are off.
    pub fn destroy(&self, space: &AddressSpace<H::Set>) -> Destroyed {
        if self.tlb.policy().lazy_references != LazyReferences::ShotDown {
            return self.destroy_later(space);
        }
        assert!(!self.is_running(space), "destroying a space that runs here");
        // A CPU leaves an exact set after it has left the space, and touches the space for that: so every member must
        // have answered.
        let everyone = if self.has_flag(flag::EXACT_SET) { Needs::EVERYONE } else { Needs::NOTHING };
        // One that holds it lazily leaves it, as its top-level table is freed.
        let needs = Needs::TABLES.with(Needs::ANSWER).with(everyone);
        let request = Request::everything(needs).in_space(space);
        self.shootdown(Translations::OfSpace(space), request, Reason::Destroy);
        self.free_now(space)
    }

    /// Ends `space` as [`destroy`](Self::destroy) does, but never interrupts a CPU and waits for no answer. It does
    /// wait while a CPU is in the middle of a switch; one that stays there is named, as in every wait, to
    /// [`Hardware::unanswered`]. So it may be called with interrupts off, and under locks that no switch and no handler
    /// of the shootdown interrupt takes; the lock under which [`with_space_of`](Hardware::with_space_of) finds a space
    /// is one that a switch does take. It may not be called from an NMI, nor from the handling of
    /// [`Event::LastLazyReference`](crate::Event). A CPU that leaves the space looks it up once more: the kernel must
    /// still find it, so do not call this after the space has been taken out of the kernel's table.
    ///
    /// It does not promise when the space can be freed: a CPU that sleeps with the space loaded keeps its page tables
    /// until it wakes up, so there is at most one dead space for each CPU.
    ///
    /// # Panics
    /// If a CPU runs the space; if it was ended before; under [`LazyReferences::ShotDown`], where no CPU looks for a
    /// notice when it leaves a space.
    pub fn destroy_later(&self, space: &AddressSpace<H::Set>) -> Destroyed {
        assert!(!self.is_running(space), "destroying a space that runs here");
        if self.has_flag(flag::LAZY_COUNTED) {
            let is_free = space.references.begin_counted_wait();
            return if is_free { self.free_now(space) } else { Destroyed::WhenUnreferenced };
        }
        assert!(self.has_flag(flag::AWAITED), "destroying a space later where lazy references are shot down");
        self.with_irqs_off_here(|irqs| self.end_awaited(space, irqs))
    }

    fn end_awaited(&self, space: &AddressSpace<H::Set>, irqs: &IrqsOff) -> Destroyed {
        if self.presence() == Presence::lazy(space.id) {
            self.load_kernel(irqs);
        }
        let holders = self.count_holders(space);
        assert!(space.references.begin_wait(holders + 1), "destroying a space twice");
        let dropped = if holders == 0 { 0 } else { self.notify_holders(space) };
        if space.references.remove(1 + dropped) { self.free_now(space) } else { Destroyed::WhenUnreferenced }
    }

    /// No CPU holds the space any more.
    fn free_now(&self, space: &AddressSpace<H::Set>) -> Destroyed {
        self.give_pcid_back(space);
        Destroyed::Now
    }

    /// Takes out of the CPU set every CPU that is not seen holding the space lazily; returns how many are left.
    fn count_holders(&self, space: &AddressSpace<H::Set>) -> u64 {
        let (own_word, own_bit) = split(self.id);
        let mut count = 0;
        for (index, word) in space.cpus().words().iter().enumerate() {
            // Relaxed: a CPU left the set in a switch or a flush that was over before the space ended.
            let members = word.load(Ordering::Relaxed);
            let mut holders = 0;
            for_each_cpu(index, members & if index == own_word { !own_bit } else { !0 }, |cpu| {
                if self.holds_lazily(cpu, space) {
                    holders |= split(cpu).1;
                }
            });
            if members != holders {
                // Relaxed: no bit is set any more, and each is taken out once, in whatever order.
                word.fetch_and(holders, Ordering::Relaxed);
            }
            count += u64::from(holders.count_ones());
        }
        count
    }

    /// Leaves a notice with each CPU in the set, and looks again: a CPU that is just leaving may have missed it.
    /// Returns how many references of such CPUs this call has taken over.
    fn notify_holders(&self, space: &AddressSpace<H::Set>) -> u64 {
        space.cpus().for_each(|cpu| self.tlb.cpus[cpu.0 as usize].notice.post());
        // SeqCst: partners are the fences of `announce_switch` and `take_notice`; the diagram above.
        fence(Ordering::SeqCst);
        let mut dropped = 0;
        space.cpus().for_each(|cpu| {
            // Relaxed: what that CPU did is ordered by the Acquire load of its presence; the bit only decides who drops
            // the reference.
            if !self.holds_lazily(cpu, space) && space.cpus().remove(cpu, Ordering::Relaxed) {
                dropped += 1;
            }
        });
        dropped
    }

    /// True if `cpu` holds `space` in lazy TLB mode. A CPU that is seen switching may still have it loaded, so this
    /// waits until the switch is over; no switch leads back into a space that no task runs.
    fn holds_lazily(&self, cpu: CpuId, space: &AddressSpace<H::Set>) -> bool {
        let mut waited = Waited::default();
        let seen = loop {
            // Acquire: partner is the Release that ends a switch, begins lazy mode or goes offline: what that CPU did
            // in the space that it left is over.
            let seen = Presence(self.tlb.cpus[cpu.0 as usize].presence.load(Ordering::Acquire));
            if seen != Presence::SWITCHING {
                break seen;
            }
            self.wait_for_switch(cpu, &mut waited);
        };
        assert!(seen != Presence::running(space.id), "destroying a space that runs on another CPU");
        seen == Presence::lazy(space.id)
    }
}
