//! Interrupts: sent at a cost, delivered later, and taken again after they were off.

use super::processor::Irqs;
use super::system::Multiprocessor;
use super::tally::Vector;

impl Multiprocessor {
    /// The running CPU interrupts `to`, which is idle, because there is a task for it to run.
    pub(crate) fn send_kick(&self, to: usize) {
        self.observer.wake_sent();
        self.write_command(self.costs.ipi_send);
        self.deliver(to, Vector::Kick);
    }

    /// The running CPU writes a command that takes it `cycles`, as soon as its last one has been accepted.
    pub(super) fn write_command(&self, cycles: u64) {
        let (cpu, processor) = (self.cpu(), self.running());
        let wait = self.apics.wait(cpu, processor.now());
        processor.work(wait + cycles);
        self.apics.note_written(cpu, processor.now());
        self.observer.command_written(wait);
    }

    /// The same for one target of a flush, if its group needs a separate command.
    pub(super) fn write_command_for(&self, to: usize) {
        if self.apics.needs_write(self.cpu(), self.topology.apic_id(to)) {
            self.write_command(self.costs.ipi_send);
        }
    }

    /// Makes an interrupt due on `to`; sending was charged by the caller.
    pub(super) fn deliver(&self, to: usize, vector: Vector) {
        let from = self.running().now();
        let mean = if self.topology.socket_of(self.cpu()).contains(&to) {
            self.costs.ipi_same_socket
        } else {
            self.costs.ipi_cross_socket
        };
        let transit = self.noise.delivery(to, mean);
        let target = &self.processors[to];
        let wake = if target.is_halted() { self.costs.idle_wake } else { 0 };
        let due = match vector {
            Vector::Flush => &target.flush_due,
            Vector::Kick => &target.kick_due,
        };
        self.tally.note_sent(vector, due.get());
        let irqs_off = if target.is_in_kernel() { self.noise.irqs_off_rest(to) } else { 0 };
        due.set(due.get().min(from + transit + wake + irqs_off));
        if target.irqs() == Irqs::On {
            self.wake(to, due.get());
        }
    }

    /// Interrupts are taken again on the running CPU, and those that are due at once.
    pub(crate) fn enable_interrupts(&'static self) {
        self.running().irqs.set(Irqs::On);
        self.look_for_interrupts();
    }

    /// Takes what has become due while the running CPU had interrupts off, one after the other, if they are on again.
    pub(super) fn look_for_interrupts(&'static self) {
        let cpu = self.cpu();
        self.forget_limits();
        while self.processors[cpu].takes_at() <= self.processors[cpu].now() {
            self.take_interrupt(cpu);
        }
    }
}
