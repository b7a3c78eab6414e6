//! Switching: who runs next on a CPU, and what changing to it costs.
//!
//! The task that leaves runs the protocol for the one that comes, as kernels do, so the idle thread pays for leaving
//! lazy mode and a task for entering it.

use tlbkit::{IrqsOff, Isolation};
use tlbkit_workloads::scheduling;

use super::TaskIndex;
use super::run_queues::{Running, WithTasks};
use super::state::Kernel;
use crate::code::{CallLines, LinesOf};
use crate::multiprocessor::{Arrival, CallKind, NEVER, Ring, suspend};
use crate::observer::{Cause, Class, KernelEvent, Moment};

/// What becomes of the task that leaves the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It goes to the end of the queue.
    Queue,
    /// It waits. Whatever it waits for has a note of it, and makes it runnable.
    Block,
    /// It goes to another CPU: the one that it is pinned to, or one that idles.
    Move,
    /// It never runs again.
    End,
}

impl Kernel {
    /// Puts a task into a queue and tells the CPU.
    pub(super) fn make_runnable(&'static self, index: TaskIndex) {
        let (machine, task) = (self.machine, self.tasks.get(index));
        let cpu = self.with_tasks().place(task);
        if task.on_cpu.get().is_none() {
            task.cpu.set(cpu);
        }
        self.queues.push(cpu, index, &self.tasks);
        let was_idle = self.queues.clear_idle(cpu);
        match machine.running_cpu() {
            Some(here) if here != cpu => {
                self.observer().kernel_event(KernelEvent::RemoteWake);
                if was_idle {
                    machine.send_kick(cpu);
                } else {
                    machine.wake(cpu, self.queues.preempt_at(cpu).max(machine.running().now()));
                }
            }
            Some(_) => machine.forget_limits(),
            None => {}
        }
    }

    /// Leaves the CPU to the next task, or to the idle thread. Returns when the task runs again, maybe on another CPU.
    /// If no other task waits and this one may go on, it returns at once. It also returns for a task that ends, whose
    /// coroutine must then return.
    pub(super) fn switch_away(&'static self, me: TaskIndex, fate: Fate) {
        let machine = self.machine;
        let cpu = machine.cpu();
        let task = self.tasks.get(me);
        if fate == Fate::Queue {
            if self.queues.is_empty(cpu) {
                return;
            }
            self.make_runnable(me);
        }
        machine.running().disable_interrupts();
        let next = self.pick(cpu);
        if next == Running::Task(me) {
            machine.enable_interrupts();
            return;
        }
        self.load(cpu, next);
        task.on_cpu.set(None);
        if fate == Fate::Move {
            self.make_runnable(me);
        }
        self.commit(cpu, next);
        if fate == Fate::End {
            return;
        }
        suspend();
        machine.enable_interrupts();
    }

    /// Moves the running task at a tick of its CPU, as a load balancer does, unless it is pinned. A task that has
    /// shared its core for long, while another core idled, moves to that core. Any other task moves now and then to an
    /// idle CPU where it runs no slower. The CPU that it leaves stays in the CPU sets of its space until a policy takes
    /// it out.
    pub(super) fn balance(&'static self, me: TaskIndex) {
        let (machine, task, queues) = (self.machine, self.tasks.get(me), self.with_tasks());
        let (cpu, noise) = (machine.cpu(), machine.noise());
        let look_from = noise.balance(cpu, machine.cpus());
        if task.is_pinned() {
            return;
        }
        let socket = machine.topology().socket_of(cpu).len();
        let alone = noise.leave_shared_core(cpu, machine.running().now(), queues.emptier_core(cpu), socket);
        let now_and_then = || queues.idle_for_moved(cpu, look_from?);
        if let Some(to) = alone.or_else(now_and_then) {
            self.observer().kernel_event(KernelEvent::Move);
            task.cpu.set(to);
            self.switch_away(me, Fate::Move);
        }
    }

    /// Sleeps until a wake-up makes the task run again.
    pub(super) fn block(&'static self, me: TaskIndex) {
        self.switch_away(me, Fate::Block);
    }

    fn with_tasks(&self) -> WithTasks<'_> {
        WithTasks { queues: &self.queues, tasks: &self.tasks, topology: self.machine.topology() }
    }

    /// Takes what the CPU runs next out of its queue, or, if that is empty, out of the queue of its core's other
    /// thread.
    fn pick(&self, cpu: usize) -> Running {
        let mut queues = self.with_tasks();
        let of_core = if self.queues.is_empty(cpu) { queues.take_of_core(cpu) } else { None };
        let Some(index) = of_core.or_else(|| scheduling::pick(&mut queues, cpu)) else { return Running::Idle };
        let task = self.tasks.get(index);
        task.on_cpu.set(Some(cpu));
        task.cpu.set(cpu);
        Running::Task(index)
    }

    /// Runs the protocol's switch to `next`, and then charges the path that the switch took, which is known only when
    /// it has returned. The CPU belongs to the task that leaves it until [`commit`](Self::commit).
    fn load(&'static self, cpu: usize, next: Running) {
        let machine = self.machine;
        let processor = machine.processor(cpu);
        self.observer().kernel_event(KernelEvent::Switch);
        self.observer().passed(cpu, Moment::Tick, processor.now());
        processor.advance_for(Cause::Kernel, machine.shared_cycles(cpu, machine.costs().context_switch));
        machine.pass();
        processor.within(Cause::Switch, || {
            let irqs = IrqsOff::assume();
            let arrival = processor.arrival_of(|| {
                machine.with_cpu(cpu, |handle| match next {
                    Running::Idle => handle.enter_lazy(&irqs),
                    Running::Task(index) => handle.switch_to(self.tasks.get(index).process.space(), &irqs),
                });
            });
            let calls = &machine.costs().calls;
            let (cycles, lines): (_, fn(&LinesOf) -> CallLines) = match (next, arrival, self.queues.running(cpu)) {
                (Running::Idle, ..) => (calls.enter_lazy, |of| of.enter_lazy),
                (Running::Task(_), Arrival::Kept, _) => (calls.current_slot, |of| of.current_slot),
                (Running::Task(_), Arrival::Flushed, _) => (calls.new_slot, |of| of.new_slot),
                (Running::Task(_), Arrival::InPlace, Running::Idle) => (calls.leave_lazy, |of| of.leave_lazy),
                (Running::Task(_), Arrival::InPlace, Running::Task(_)) => (calls.same_space, |of| of.same_space),
            };
            machine.begin_call(cpu, CallKind::Switch);
            let cold = machine.cold_cycles(cpu, CallKind::Switch, lines);
            processor.advance(machine.shared_cycles(cpu, cycles) + cold);
        });
    }

    /// From here on the CPU belongs to `next`; nothing may yield before the fiber suspends or ends.
    fn commit(&self, cpu: usize, next: Running) {
        let processor = self.machine.processor(cpu);
        let now = processor.now();
        processor.become_busy_with(if next == Running::Idle { Class::Idle } else { Class::Task });
        self.queues.run(cpu, next, now + self.machine.costs().time_slice);
        self.machine.schedule(cpu, now);
    }

    /// The idle thread of a CPU. Never returns: the run ends without it.
    pub(crate) fn idle_main(&'static self, cpu: usize) {
        let machine = self.machine;
        let processor = machine.processor(cpu);
        // This coroutine first runs at the first wake-up. The CPU has idled from the begin of the run until then.
        processor.advance_to(machine.turn_began_at(), Cause::Idle);
        loop {
            processor.disable_interrupts();
            let next = self.pick(cpu);
            if next != Running::Idle {
                self.queues.clear_idle(cpu);
                machine.noise().forget_ticks(cpu, processor.now());
                self.load(cpu, next);
                self.commit(cpu, next);
                suspend();
                continue;
            }
            self.queues.set_idle(cpu);
            processor.advance_for(Cause::Idle, machine.shared_cycles(cpu, machine.costs().halt_entry));
            machine.enable_interrupts();
            if self.queues.is_empty(cpu) {
                machine.halt();
            }
            machine.sync(if self.queues.only_pinned_wait(cpu) { NEVER } else { 0 });
        }
    }

    /// From the program into the kernel.
    pub(super) fn enter_kernel(&'static self) {
        let machine = self.machine;
        let processor = machine.running();
        processor.set_ring(Ring::Kernel);
        self.observer().passed(machine.cpu(), Moment::Crossing, processor.now());
        processor.charge_to(Cause::Kernel);
        self.lru.begin_call(machine.cpu());
        if machine.defers_kernel_flushes() {
            processor.disable_interrupts();
            machine.do_deferred_flushes();
            machine.enable_interrupts();
        }
        if self.isolates() {
            processor.disable_interrupts();
            machine.with_cpu(machine.cpu(), |handle| handle.enter_kernel(&IrqsOff::assume()));
            machine.enable_interrupts();
        }
        machine.pass_with_irqs_off();
    }

    /// From the kernel back to the program.
    pub(super) fn return_to_user(&'static self) {
        let machine = self.machine;
        let processor = machine.running();
        self.observer().passed(machine.cpu(), Moment::Crossing, processor.now());
        if self.isolates() || machine.defers_kernel_flushes() {
            processor.disable_interrupts();
            machine.defer_kernel_flushes();
            if self.isolates() {
                machine.with_cpu(machine.cpu(), |handle| handle.exit_to_user(&IrqsOff::assume()));
            }
            // Before interrupts are on: one that comes now must find the user half loaded and enter the kernel.
            processor.set_ring(Ring::User);
            machine.enable_interrupts();
        } else {
            processor.set_ring(Ring::User);
        }
        processor.charge_to(Cause::User);
    }

    fn isolates(&self) -> bool {
        self.machine.tlb().policy().isolation == Isolation::On
    }

    /// Charges the idle time at the end of the run. Idle time is charged when it ends, which this never does. All CPUs
    /// are charged up to one moment: the end of the last task, or later if a CPU was ahead of it in an interrupt.
    pub(crate) fn idle_to_the_end(&self) {
        let cpus = || (0..self.machine.cpus()).map(|cpu| self.machine.processor(cpu));
        let end = cpus().map(|processor| processor.now()).fold(self.ended_at(), u64::max);
        cpus().for_each(|processor| processor.advance_to(end, Cause::Idle));
    }

    /// Notes that the CPU idles, as all do before the first cycle.
    pub(crate) fn set_idle(&self, cpu: usize) {
        self.queues.set_idle(cpu);
    }

    /// Fetches what the scheduler knows of the CPU into the host's caches.
    pub(crate) fn prefetch(&self, cpu: usize) {
        self.queues.prefetch(cpu);
    }

    /// Drops the coroutines of tasks that have not ended.
    pub(crate) fn drop_fibers(&self) {
        self.tasks.drop_fibers();
    }

    /// Runs whatever `cpu` runs, until it lets go of the CPU. `idle_thread` is the coroutine of its idle thread.
    pub(crate) fn resume(&self, cpu: usize, idle_thread: impl FnOnce()) {
        match self.queues.running(cpu) {
            Running::Idle => idle_thread(),
            Running::Task(index) => self.tasks.get(index).resume(),
        }
    }
}
