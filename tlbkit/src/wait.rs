//! Waiting for the answers, and what a sender does about CPUs that are late.
//!
//! INV-7: a waiting CPU answers others, so two senders never deadlock. It waits with interrupts on, because the CPU
//! that it waits for may itself wait for an interrupt of another kind. A CPU that was taken out while it was being
//! asked answers nobody; its sender withdraws the request, and [`Cpu::bring_up`] flushes whatever it missed:
//!
//! ```text
//!   sender (wait)                             CPU that leaves (offline)
//!   outbox[sender] := targets                 leave every space
//!   is my target absent? (Acquire)            answer what is there
//!   if so, clear its bit                      presence := absent (Release); reads no mailbox from here on
//!
//!                                             CPU that comes back (bring_up)
//!                                             clear its bits in all outboxes; leave all hints
//!                                             join the online CPUs; presence := kernel; fence; flush all; answer
//! ```
//! Both may clear the same bit, and neither reads the mailbox then, so the sender may use it again at once.

use core::ops::Range;

use crate::addr::CpuId;
use crate::cpu_set::{AtomicCpuSet, each_cpu, first_cpu};
use crate::cpu_state::{Cpu, Presence, Tlb};
use crate::hardware::{Event, Hardware};
use crate::sync::Ordering;

/// CPUs that have not answered, by name.
#[derive(Clone, Copy)]
pub struct Missing<'a>(AtomicCpuSet<'a>);

impl Missing<'_> {
    /// Calls `f` with each of them.
    pub fn each(&self, mut f: impl FnMut(CpuId)) {
        for (index, word) in self.0.words().iter().enumerate() {
            // Relaxed: a report; what it names may answer meanwhile.
            each_cpu(index, word.load(Ordering::Relaxed), &mut f);
        }
    }
}

/// What to do about CPUs that are late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// Wait on.
    Wait,
    /// Interrupt them again: an interrupt may have been lost. A request that arrives twice is carried out once.
    AskAgain,
}

impl Tlb<'_> {
    /// States that `cpu` has stopped by force and executes nothing until its [`Cpu::bring_up`]: a crash, or a guest's
    /// CPU taken away by its host. Whoever waits for it stops waiting; whoever flushes leaves it out.
    ///
    /// If it was itself asking, and stopped between its hint and its interrupt, the hint stays in its target's inbox
    /// and no interrupt follows; the next sender counts on that interrupt and sends none. So a kernel that calls this
    /// must return [`Late::AskAgain`] from [`Hardware::late`].
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn declare_stopped(&self, cpu: CpuId) {
        // Release: as a CPU's own goodbye; partner is the Acquire in `tell`. Who still finds it there finds it absent.
        self.online().remove(cpu, Ordering::Release);
        // Release: as a CPU's own goodbye; partner is the Acquire in `withdraw` and `must_tell`.
        self.cpus[cpu.0 as usize].presence.store(Presence::ABSENT.0, Ordering::Release);
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Waits until every target, all of them named in `words` of the outbox, has answered; answers others meanwhile.
    ///
    /// # Panics
    /// If interrupts are off (INV-7).
    #[cold]
    pub(crate) fn wait(&self, words: Range<usize>) {
        assert!(self.hardware.irqs_enabled(), "waiting for other CPUs with interrupts off");
        let mut turns = 0;
        for (index, word) in self.tlb.matrix.outbox(self.id).words_at(words) {
            loop {
                // Acquire: partner is the Release with which a target clears its bit: its flush is over (C-60).
                let waited_for = word.load(Ordering::Acquire);
                if waited_for == 0 {
                    break;
                }
                self.hardware.event(Event::Waiting(first_cpu(index, waited_for)));
                self.hardware.with_irqs_off(|irqs| self.answer(irqs));
                self.hardware.relax();
                turns += 1;
                if turns == self.hardware.patience_turns() {
                    turns = 0;
                    self.face_late();
                }
            }
        }
        self.state.is_sending.set(0);
    }

    /// CPUs that have not answered this CPU's request yet: what a watchdog prints.
    #[must_use]
    pub fn missing(&self) -> Missing<'_> {
        Missing(self.tlb.matrix.outbox(self.id))
    }

    #[cold]
    fn face_late(&self) {
        self.missing().each(|cpu| self.withdraw(cpu));
        if self.hardware.late(self.missing()) == Late::AskAgain {
            self.missing().each(|cpu| self.ask_again(cpu));
        }
    }

    /// Takes back the request to a CPU that has left.
    fn withdraw(&self, cpu: CpuId) {
        // Acquire: partner is the Release of `offline`: that CPU reads this mailbox no more.
        if self.tlb.cpus[cpu.0 as usize].presence.load(Ordering::Acquire) == Presence::ABSENT.0 {
            // Relaxed: this CPU's own wait is all that reads the bit.
            self.tlb.matrix.outbox(self.id).remove(cpu, Ordering::Relaxed);
        }
    }

    fn ask_again(&self, cpu: CpuId) {
        self.tlb.matrix.inbox(cpu).add_again(self.id);
        self.hardware.send_ipi(cpu);
    }

    /// Forgets what others asked of this CPU while it was away: it is about to flush everything. The hints stay: a
    /// sender that sets its bit from here on may have dropped its hint already, and will not drop it again. The answer
    /// that ends the return looks for them everywhere. What it asked of others when it was stopped is forgotten too: a
    /// wait looks at the words that its flush has written, so the others must be empty.
    pub(crate) fn forget_requests(&self) {
        // Relaxed: this CPU is not waiting for them.
        self.tlb.matrix.outbox(self.id).words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        for sender in 0..self.tlb.cpus.len() as u32 {
            // Relaxed: a sender that waits for the bit needs nothing of this CPU but that it flushes before it runs.
            self.tlb.matrix.outbox(CpuId(sender)).remove(self.id, Ordering::Relaxed);
        }
        self.tlb.matrix.inbox(self.id).look_everywhere();
    }
}
