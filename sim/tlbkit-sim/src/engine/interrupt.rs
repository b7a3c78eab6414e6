//! Interrupts: sent at a cost, delivered later, taken when interrupts are on.

use tlbkit::IrqsOff;

use super::core::{Irqs, NEVER, Ring};
use super::ledger::Cause;
use super::world::World;

/// What an interrupt is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Vector {
    /// A request of the protocol.
    Flush,
    /// There is a task to run.
    Kick,
}

impl World {
    /// Makes an interrupt due on `to`; sending was charged by the caller.
    pub(crate) fn deliver(&self, to: usize, vector: Vector) {
        let from = self.core().clock.get();
        let transit =
            if self.same_socket(self.cpu(), to) { self.costs.ipi_same_socket } else { self.costs.ipi_cross_socket };
        let core = &self.cores[to];
        let wake = if self.kernel.is_halted(to) { self.costs.idle_wake } else { 0 };
        let due = match vector {
            Vector::Flush => &core.flush_due,
            Vector::Kick => &core.kick_due,
        };
        due.set(due.get().min(from + transit + wake));
        if core.irqs.get() == Irqs::On {
            self.wake(to, due.get());
        }
    }

    /// Takes every interrupt that is due on the running CPU.
    pub(crate) fn take_interrupts(&'static self, cpu: usize) {
        let core = &self.cores[cpu];
        core.spin.borrow_mut().disturb();
        let irqs = core.irqs.replace(Irqs::Off);
        let ring = core.ring.replace(Ring::Kernel);
        let now = core.clock.get();
        core.within(Cause::Interrupt, || {
            core.advance(self.costs.interrupt);
            if core.kick_due.get() <= now {
                core.kick_due.set(NEVER);
            }
            if core.flush_due.get() <= now {
                core.flush_due.set(NEVER);
                self.answer(cpu, ring);
            }
        });
        core.ring.set(ring);
        core.irqs.set(irqs);
        self.forget_limits();
    }

    fn answer(&'static self, cpu: usize, ring: Ring) {
        let core = &self.cores[cpu];
        core.count_ipis(|ipis| ipis.received += 1);
        core.advance(self.costs.calls.answer);
        let irqs = IrqsOff::assume();
        self.with_cpu(cpu, |handle| {
            if ring == Ring::User {
                handle.enter_kernel(&irqs);
            }
            handle.answer(&irqs);
            if ring == Ring::User {
                handle.exit_to_user(&irqs);
            }
        });
    }
}
