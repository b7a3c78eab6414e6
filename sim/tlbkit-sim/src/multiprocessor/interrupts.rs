//! Interrupts: sent at a cost, delivered later, and taken again after they were off.

use super::processor::Irqs;
use super::system::Multiprocessor;
use super::tally::Vector;

impl Multiprocessor {
    /// The running CPU interrupts `to`, which is idle, because there is a task for it to run.
    pub(crate) fn send_kick(&self, to: usize) {
        self.observer.wake_sent();
        self.running().advance(self.costs.ipi_send);
        self.deliver(to, Vector::Kick);
    }

    /// Makes an interrupt due on `to`; sending was charged by the caller.
    pub(super) fn deliver(&self, to: usize, vector: Vector) {
        let from = self.running().now();
        let mean =
            if self.same_socket(self.cpu(), to) { self.costs.ipi_same_socket } else { self.costs.ipi_cross_socket };
        let transit = self.noise.delivery(to, mean);
        let target = &self.processors[to];
        let wake = if target.is_halted() { self.costs.idle_wake } else { 0 };
        let due = match vector {
            Vector::Flush => &target.flush_due,
            Vector::Kick => &target.kick_due,
        };
        self.tally.note_sent(vector, due.get());
        due.set(due.get().min(from + transit + wake));
        if target.irqs() == Irqs::On {
            self.wake(to, due.get());
        }
    }

    /// Interrupts are taken again on the running CPU, and those that are due at once.
    pub(crate) fn enable_interrupts(&'static self) {
        self.running().irqs.set(Irqs::On);
        self.look_for_interrupts();
    }

    /// Takes what has become due while the running CPU had interrupts off, if they are on again.
    pub(super) fn look_for_interrupts(&'static self) {
        let cpu = self.cpu();
        self.forget_limits();
        if self.processors[cpu].takes_at() <= self.processors[cpu].now() {
            self.take_interrupts(cpu);
        }
    }
}
