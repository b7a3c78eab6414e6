//! Which task a CPU runs: switching, idling, going away, and the end of a space.

use tlbkit::{CpuId, Destroyed, Hardware, IrqsOff};
use tlbkit_pmap::{ChildFill, USER_END};

use super::kernel::End;
use crate::machine::core::Mode;
use crate::machine::errata::Erratum;
use crate::machine::observation::Observation;
use crate::machine::port::Protocol;
use crate::machine::world::World;

impl<'k> World<'k> {
    /// Switches to a task of `space`, unless it is dead.
    pub(super) fn run_space(&self, cpu: usize, space: usize) {
        let left = self.kernel.runs(cpu);
        if !self.kernel.is_alive(space) || left == Some(space) {
            return;
        }
        // Both are held while the switch is under way: nobody destroys either.
        self.kernel.hold(space);
        // The new task from here on: a handler in between relies on what the protocol says of it.
        self.kernel.set_runs(cpu, Some(space));
        self.machine.borrow_mut().begin("switch", None, 0..0);
        self.with_cpu(cpu, |handle| {
            handle.hardware().with_irqs_off(|irqs| {
                self.pass(handle, irqs);
                handle.switch_to(self.vm(space).space(), irqs);
            });
        });
        self.machine.borrow_mut().end();
        left.into_iter().for_each(|left| self.kernel.unhold(left));
    }

    /// Leaves the task, if there is one.
    pub(super) fn leave(&self, cpu: usize, how: impl FnOnce(Protocol<'_, 'k, '_>, &IrqsOff)) {
        let left = self.kernel.runs(cpu);
        self.kernel.set_runs(cpu, None);
        self.with_cpu(cpu, |handle| handle.hardware().with_irqs_off(|irqs| how(handle, irqs)));
        left.into_iter().for_each(|left| self.kernel.unhold(left));
    }

    /// Uses a foreign space for a moment, as a kernel does to write another process's memory.
    pub(super) fn borrow_space(&self, cpu: usize, space: usize) {
        if !self.kernel.is_alive(space) {
            return;
        }
        self.kernel.hold(space);
        self.with_cpu(cpu, |handle| {
            let borrowed = self.vm(space).space();
            handle.hardware().with_irqs_off(|irqs| {
                handle.with_space(borrowed, irqs, || {
                    self.machine.borrow_mut().report(&Observation::UserMemoryAllowed { cpu });
                });
            });
        });
        self.kernel.unhold(space);
    }

    /// Goes offline, and comes back after `steps` steps.
    pub(super) fn offline(&self, cpu: usize, steps: u8) {
        self.leave(cpu, |handle, irqs| {
            self.set_mode(cpu, Mode::Absent);
            handle.offline(irqs);
        });
        (0..steps).for_each(|_| self.point());
        self.come_back(cpu);
    }

    /// Is stopped by force in the middle of its task. After some steps somebody declares it; later it is restarted.
    pub(super) fn stop(&self, cpu: usize, steps: u8) {
        self.die(cpu, steps);
        (0..steps).for_each(|_| self.point());
        self.machine.borrow_mut().restart(cpu, self.kernel_map.root().0);
        let left = self.kernel.runs(cpu);
        self.kernel.set_runs(cpu, None);
        self.come_back(cpu);
        left.into_iter().for_each(|left| self.kernel.unhold(left));
    }

    /// Is stopped by force, and declared so after some steps.
    pub(super) fn die(&self, cpu: usize, steps: u8) {
        self.set_mode(cpu, Mode::Stopped);
        self.kernel.has_stopped.set(true);
        (0..steps).for_each(|_| self.point());
        self.machine.borrow_mut().drain();
        self.tlb.declare_stopped(CpuId(cpu as u32));
        self.machine.borrow_mut().drain();
    }

    /// True if the CPU was stopped and not restarted.
    pub(super) fn is_gone(&self, cpu: usize) -> bool {
        self.machine.borrow().cpus[cpu].mode == Mode::Stopped
    }

    fn come_back(&self, cpu: usize) {
        self.with_cpu(cpu, |handle| handle.hardware().with_irqs_off(|irqs| handle.bring_up(irqs)));
        self.set_mode(cpu, Mode::Kernel);
    }

    /// Copies the space into a new one, which nobody runs yet.
    pub(super) fn fork(&self, cpu: usize, space: usize) {
        let Some(child) = self.make_space() else { return };
        self.machine.borrow_mut().values.begin_copy(space);
        let forked = self.revoke(cpu, space, "fork", &(0..USER_END), |handle, vm| {
            vm.fork(&handle, &self.bus(), self.vm(child), ChildFill::ByPolicy)
        });
        self.machine.borrow_mut().values.end_copy(space, child);
        if forked.is_ok() {
            self.kernel.set_alive(child);
        }
    }

    /// Asks for a PCID of the space that all CPUs share.
    pub(super) fn share(&self, cpu: usize, space: usize) {
        self.machine.borrow_mut().begin("share", None, 0..0);
        self.with_cpu(cpu, |handle| handle.share_pcid(self.vm(space).space()));
        self.machine.borrow_mut().end();
    }

    /// Ends the space if this is its last task.
    pub(super) fn exit(&self, cpu: usize, space: usize) {
        if !self.kernel.begin_exit(space) {
            return;
        }
        // Every CPU that ran a task of the space has written that it does so no longer, and those stores have arrived.
        self.machine.borrow_mut().drain_all();
        self.kernel.set_runs(cpu, None);
        self.change(cpu, space, "exit", &(0..USER_END), |handle, vm| vm.exit(&handle, &self.bus()));
        self.kernel.unhold(space);
        self.kernel.set_end(space, End::Awaited);
        self.change(cpu, space, "destroy", &(0..0), |handle, vm| {
            // `WhenUnreferenced` is heard of again in `reclaim`.
            let is_free = vm.destroy(&handle, &self.bus()) == Destroyed::Now;
            if is_free || self.machine.borrow().errata.has(Erratum::FreedTooEarly) {
                self.kernel.set_end(space, End::Notified);
            }
        });
    }

    /// Frees the spaces whose last lazy reference this CPU has dropped.
    pub(super) fn reclaim(&self, cpu: usize) {
        while let Some(space) = self.kernel.next_to_reclaim(cpu) {
            self.change(cpu, space, "reclaim", &(0..0), |_, vm| vm.reclaim(&self.bus()));
        }
    }
}
