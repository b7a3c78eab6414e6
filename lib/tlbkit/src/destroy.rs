//! The end of a space: who still holds it, and who says that nobody does.
//!
//! No task runs the space any more, but CPUs may hold it lazily, and walk its tables whenever they like (C-20, C-25).
//! [`LazyReferences`] says what becomes of them. `Awaited`: they are left alone, and the last one that leaves by itself
//! tells the kernel; the handshake is drawn in `leave.rs`. `ShotDown`: they are interrupted, and leave at once.

use crate::addr::{CpuId, Stride};
use crate::address_space::{AddressSpace, Destroyed, Generation, Translations};
use crate::cpu_set::{AtomicCpuSet, each_cpu, split};
use crate::cpu_state::Presence;
use crate::hardware::{Hardware, IrqsOff};
use crate::history::choices::LazyReferences;
use crate::reason::Reason;
use crate::request::{Extent, Needs, Request, Step};
use crate::sync::{Ordering, fence};
use crate::tlb::{Cpu, flag};

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Ends `space`: no task runs it any more, on any CPU, and none ever will. This CPU may hold it lazily.
    ///
    /// [`Destroyed::Now`]: no CPU has it loaded or touches it, and everything can be freed.
    /// [`Destroyed::WhenUnreferenced`]: some CPU holds it lazily. The space and its tables must live until
    /// [`Event::LastLazyReference`](crate::Event) names it, on whatever CPU; that may happen before this call returns.
    ///
    /// Under [`LazyReferences::ShotDown`] it interrupts the CPUs that hold the space, waits for them, and always
    /// returns `Now`; under any other choice it is [`destroy_later`](Self::destroy_later).
    ///
    /// # Panics
    /// As `destroy_later`; under `ShotDown` also if a CPU must be waited for and interrupts are off.
    pub fn destroy(&self, space: &AddressSpace<H::Set>) -> Destroyed {
        if self.tlb.policy().lazy_references == LazyReferences::ShotDown {
            self.shoot_down(space);
            return Destroyed::Now;
        }
        self.destroy_later(space)
    }

    /// Ends `space` as [`destroy`](Self::destroy) does, but never interrupts a CPU nor waits for an answer. It does
    /// wait while a CPU is in the middle of a switch. So it may be called with interrupts off, and under locks that no
    /// switch takes; the lock with which [`with_space_of`](Hardware::with_space_of) finds a space is one that a switch
    /// takes. Not from an NMI, and not while [`Event::LastLazyReference`](crate::Event) is being told. A CPU that
    /// leaves the space looks it up once more: the kernel must still find it, so this is not called where the space
    /// has gone from the kernel's table already.
    ///
    /// It promises nothing about when: a CPU that sleeps with the space loaded keeps its tables until it wakes, so at
    /// most one dead space a CPU.
    ///
    /// # Panics
    /// If a CPU runs the space; if it was ended before; under [`LazyReferences::ShotDown`], where a CPU that leaves
    /// looks for nothing.
    pub fn destroy_later(&self, space: &AddressSpace<H::Set>) -> Destroyed {
        assert!(!self.is_running(space), "destroying a space that runs here");
        if let Some(destroyed) = self.end_counted(space) {
            return destroyed;
        }
        assert!(self.has_flag(flag::AWAITED), "destroying a space later where lazy references are shot down");
        self.with_irqs_off_here(|irqs| self.end_awaited(space, irqs))
    }

    /// The destroyer's side of the diagram in `leave.rs`.
    fn end_awaited(&self, space: &AddressSpace<H::Set>, irqs: &IrqsOff) -> Destroyed {
        if self.presence() == Presence::lazy(space.id) {
            self.load_kernel(irqs);
        }
        let holders = self.name_holders(space);
        assert!(space.references.begin_wait(holders + 1), "destroying a space twice");
        let given_back = if holders == 0 { 0 } else { self.notify_holders(space) };
        if space.references.remove(1 + given_back) { Destroyed::Now } else { Destroyed::WhenUnreferenced }
    }

    /// Takes out of the set of a space that dies each CPU that is not seen holding it lazily; says how many are left.
    fn name_holders(&self, space: &AddressSpace<H::Set>) -> u64 {
        let (own_word, own_bit) = split(self.id);
        let mut count = 0;
        for (index, word) in space.cpus().words().iter().enumerate() {
            // Relaxed: who has left the set did so in a switch or a flush that was over before the space ended.
            let members = word.load(Ordering::Relaxed);
            let mut holders = 0;
            each_cpu(index, members & if index == own_word { !own_bit } else { !0 }, |cpu| {
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

    /// Leaves a notice with each CPU that the set names, and looks again: a CPU that is leaving may have missed it.
    /// Says how many references this call has taken back from such CPUs.
    fn notify_holders(&self, space: &AddressSpace<H::Set>) -> u64 {
        each_member(&space.cpus(), |cpu| self.tlb.cpus[cpu.0 as usize].notice.leave());
        // SeqCst: partners are the fences of `begin_entry` and `is_noticed`; the diagram in `leave.rs`.
        fence(Ordering::SeqCst);
        let mut given_back = 0;
        each_member(&space.cpus(), |cpu| {
            // Relaxed: the Acquire of its presence has ordered what that CPU did; of the bit only who takes it counts.
            if !self.holds_lazily(cpu, space) && space.cpus().remove(cpu, Ordering::Relaxed) {
                given_back += 1;
            }
        });
        given_back
    }

    /// True if `cpu` holds `space` lazily. One that is seen switching may still have it loaded, so this waits until the
    /// switch is over; no switch leads back into a space that no task runs.
    fn holds_lazily(&self, cpu: CpuId, space: &AddressSpace<H::Set>) -> bool {
        let seen = self.settled_presence(cpu);
        assert!(seen != Presence::running(space.id), "destroying a space that runs on another CPU");
        seen == Presence::lazy(space.id)
    }

    fn settled_presence(&self, cpu: CpuId) -> Presence {
        loop {
            // Acquire: partner is the Release that ends a switch, begins lazy mode or leaves: what that CPU did in the
            // space that it left is over.
            let seen = Presence(self.tlb.cpus[cpu.0 as usize].presence.load(Ordering::Acquire));
            if seen != Presence::SWITCHING {
                return seen;
            }
            self.hardware.relax();
        }
    }

    /// Makes every CPU leave the space.
    fn shoot_down(&self, space: &AddressSpace<H::Set>) {
        assert!(!self.is_running(space), "destroying a space that runs here");
        let everyone = if self.has_flag(flag::EXACT_SET) { Needs::EVERYONE } else { Needs::NOTHING };
        let request = Request {
            space: space.id,
            token: space.token,
            generation: Generation::NEVER,
            extent: Extent::Everything,
            step: Step::of(Stride::Page4K),
            needs: Needs::TABLES.with(everyone),
        };
        self.shootdown(Translations::OfSpace(space), request, Reason::Destroy);
    }
}

/// Calls `f` with each CPU that is in the set when its word is read.
fn each_member(set: &AtomicCpuSet<'_>, mut f: impl FnMut(CpuId)) {
    for (index, word) in set.words().iter().enumerate() {
        // Relaxed: nobody sets a bit of a space that dies, and who has taken out his own is seen elsewhere.
        each_cpu(index, word.load(Ordering::Relaxed), &mut f);
    }
}
