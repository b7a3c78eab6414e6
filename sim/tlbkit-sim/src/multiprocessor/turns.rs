//! Whose turn it is: how CPUs yield, sleep and wake each other, and take interrupts meanwhile.
//!
//! The kernel on the machine says when a CPU may act next ([`Multiprocessor::schedule`]), asks who is
//! ([`Multiprocessor::next`]), and resumes the coroutine of that CPU, which hands over by suspending.

use super::agenda::NEVER;
use super::fiber;
use super::processor::{Irqs, Processor, Ring};
use super::system::{Multiprocessor, NOBODY};
use super::tally::Vector;
use crate::host::prefetch;
use crate::observer::Cause;

/// The CPU whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// The CPU that acts.
    pub(crate) cpu: usize,
    /// The one that acts after it, as far as that is known.
    pub(crate) after: Option<usize>,
}

impl Multiprocessor {
    /// Makes the next CPU to act the current one, and returns it; none if no CPU will ever act again.
    pub(crate) fn next(&self) -> Option<Turn> {
        let agenda = self.agenda.borrow();
        let (at, cpu) = agenda.first()?;
        let cpu = cpu as usize;
        self.current.set(cpu);
        self.now.set(at);
        let second = agenda.second();
        self.horizon.set(second.map_or(NEVER, |(at, _)| at));
        let after = second.map(|(_, cpu)| cpu as usize);
        if let Some(after) = after {
            self.frames.prefetch(after);
            prefetch(&self.processors[after]);
        }
        self.processors[cpu].prefetch();
        self.forget_limits();
        Some(Turn { cpu, after })
    }

    /// When the turn of the running CPU began.
    pub(crate) fn turn_began_at(&self) -> u64 {
        self.now.get()
    }

    /// The host takes over again.
    pub(crate) fn stop(&self) {
        self.forget_limits();
        self.current.set(NOBODY);
    }

    /// Gives the CPU a time at which it acts next.
    pub(crate) fn schedule(&self, cpu: usize, at: u64) {
        self.agenda.borrow_mut().set(cpu as u32, at);
    }

    /// Lets the CPU act at `at` if it would act later or never.
    pub(crate) fn wake(&self, cpu: usize, at: u64) {
        if Some(cpu) == self.running_cpu() {
            return;
        }
        let at = at.max(self.processors[cpu].now()).max(self.away_until(cpu));
        let mut agenda = self.agenda.borrow_mut();
        if agenda.when(cpu as u32) > at {
            agenda.set(cpu as u32, at);
            self.horizon.set(self.horizon.get().min(at));
            self.forget_limits();
        }
    }

    /// How far a CPU may be ahead of the others and still touch memory: no interrupt that a CPU behind it sends now
    /// arrives sooner.
    pub(crate) fn touch_lookahead(&self) -> u64 {
        self.noise.shortest_delivery(self.costs.ipi_same_socket.min(self.costs.ipi_cross_socket))
    }

    /// Notes that it is no longer known how far the running CPU may go without a look around.
    #[inline]
    pub(crate) fn forget_limits(&self) {
        self.limit.set(0);
        self.end_streak();
    }

    /// Ends the streak of loads of one line, so that the next access is looked up.
    #[inline]
    pub(super) fn end_streak(&self) {
        let hits = self.streak.end(self.costs.lines.local_cycles);
        if hits > 0 {
            self.lines.borrow_mut().count_hits(hits);
        }
    }

    /// Computes until when the CPU may touch memory without a look around: until then no other CPU can matter to it.
    /// What runs on it wants to look around at `bound` at the latest.
    pub(crate) fn refresh_limit(&self, cpu: usize, bound: u64) {
        let ahead = self.horizon.get().saturating_add(self.touch_lookahead() + 1);
        let bound = bound.min(self.lent_until(cpu));
        self.limit.set(ahead.min(self.processors[cpu].takes_at()).min(bound));
    }

    /// True if the running CPU, which is `processor`, must look around before its next touch of memory.
    #[inline]
    pub(crate) fn must_look_around(&self, processor: &Processor) -> bool {
        processor.now() >= self.limit.get()
    }

    /// Lets CPUs that are behind catch up, unless this one is at most `lookahead` cycles ahead; takes due interrupts.
    pub(crate) fn sync(&'static self, lookahead: u64) {
        let cpu = self.cpu();
        let processor = &self.processors[cpu];
        loop {
            if processor.now() >= self.lent_until(cpu) {
                self.end_slice();
            } else if processor.takes_at() <= processor.now() {
                self.take_interrupt(cpu);
            } else if processor.now() > self.horizon.get().saturating_add(lookahead) {
                self.hand_over(processor.now());
            } else {
                return;
            }
        }
    }

    /// Takes one interrupt that is due on the running CPU. Another that is due pends until this one is over. A wake-up
    /// comes first, as the higher vector has priority: Linux's `RESCHEDULE_VECTOR` lies above `CALL_FUNCTION_VECTOR`.
    pub(super) fn take_interrupt(&'static self, cpu: usize) {
        let processor = &self.processors[cpu];
        processor.spin.borrow_mut().disturb();
        let irqs = processor.irqs.replace(Irqs::Off);
        let ring = processor.ring.replace(Ring::Kernel);
        let now = processor.now();
        processor.within(Cause::Interrupt, || {
            processor.advance(self.shared_cycles(cpu, self.costs.interrupt));
            if ring == Ring::User {
                self.do_deferred_flushes();
            }
            if processor.kick_due.get() <= now {
                processor.kick_due.set(NEVER);
                self.tally.note_taken(Vector::Kick);
            } else if processor.flush_due.get() <= now {
                processor.flush_due.set(NEVER);
                self.tally.note_taken(Vector::Flush);
                self.observer.flush_interrupt_taken();
                (self.flush_handler)(self, cpu, ring);
            }
            if ring == Ring::User {
                self.defer_kernel_flushes();
            }
        });
        processor.ring.set(ring);
        processor.irqs.set(irqs);
        self.forget_limits();
    }

    /// Sleeps until `at`, or until somebody wakes the CPU; interrupts are left to the caller.
    pub(crate) fn sleep_until(&'static self, at: u64, cause: Cause) {
        let processor = self.running();
        if at > self.horizon.get() || at == NEVER {
            self.hand_over(at);
            processor.advance_to(self.now.get(), cause);
        } else {
            processor.advance_to(at, cause);
        }
    }

    /// HLT: sleeps until an interrupt is due, or somebody wakes the CPU. Interrupts are left to the caller.
    pub(crate) fn halt(&'static self) {
        let processor = self.running();
        processor.is_halted.set(true);
        self.sleep_until(processor.due(), Cause::Idle);
        processor.is_halted.set(false);
        self.lend_again();
    }

    pub(super) fn hand_over(&self, at: u64) {
        if at == NEVER {
            self.agenda.borrow_mut().remove(self.cpu() as u32);
        } else {
            self.schedule(self.cpu(), at);
        }
        self.frames.record(self.cpu());
        fiber::suspend();
    }
}
