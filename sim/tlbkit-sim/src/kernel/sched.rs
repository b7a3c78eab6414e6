//! Switching: who runs next on a CPU, and what changing to it costs.
//!
//! The task that leaves runs the protocol for the one that comes, as kernels do, so the idle thread pays for leaving
//! lazy mode and a task for entering it.

use tlbkit::IrqsOff;
use tlbkit_workloads::calls::TaskRandom;
use tlbkit_workloads::{Task, scheduling};

use super::process::Process;
use super::task::{TaskSlot, TaskState};
use super::{Halt, Running, TaskIndex};
use crate::engine::core::{Arrival, Irqs, NEVER, Ring};
use crate::engine::fiber::{self, Fiber};
use crate::engine::interrupt::Vector;
use crate::engine::ledger::{Cause, Class};
use crate::engine::world::World;
use crate::run::RunError;
use crate::run::keep::Keep;

/// What becomes of the task that leaves the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It goes to the end of the queue.
    Queue,
    /// It waits; its state already says so.
    Block,
    /// It goes to the CPU that it is pinned to.
    Move,
    /// It never runs again.
    End,
}

impl World {
    /// Creates a task; [`make_runnable`](Self::make_runnable) lets it run.
    pub(crate) fn new_task(&'static self, program: Task, process: &'static Process) -> TaskIndex {
        let kernel = &self.kernel;
        let index = kernel.tasks.borrow().len() as TaskIndex;
        let cpu = self.running_cpu().unwrap_or(0);
        let slot = Box::new(TaskSlot::new(process, cpu, TaskRandom::new(kernel.seed, u64::from(index))));
        match Fiber::new(move || self.task_main(index, program)) {
            Ok(fiber) => *slot.fiber.borrow_mut() = Some(fiber),
            Err(error) => self.fail(RunError::Stack(error.to_string())),
        }
        kernel.tasks.borrow_mut().push(Keep::new(slot));
        kernel.live_tasks.set(kernel.live_tasks.get() + 1);
        kernel.count(|counters| counters.tasks += 1);
        process.threads.set(process.threads.get() + 1);
        index
    }

    /// Puts a task into a queue and tells the CPU.
    pub(crate) fn make_runnable(&'static self, index: TaskIndex) {
        let task = self.kernel.task(index);
        let cpu = scheduling::place(&self, task.cpu.get(), task.on_cpu.get().or(task.pinned.get()));
        task.state.set(TaskState::Queued);
        if task.on_cpu.get().is_none() {
            task.cpu.set(cpu);
        }
        self.kernel.runs[cpu].queue.borrow_mut().push_back(index);
        self.kernel.note_queued(cpu, task);
        let was_idle = self.kernel.idle.contains(cpu);
        self.kernel.idle.remove(cpu);
        match self.running_cpu() {
            Some(here) if here != cpu => self.tell(cpu, was_idle),
            Some(_) => self.forget_limits(),
            None => {}
        }
    }

    fn tell(&'static self, cpu: usize, was_idle: bool) {
        self.kernel.count(|counters| counters.remote_wakes += 1);
        if was_idle {
            self.core().count_ipis(|ipis| ipis.wakes_sent += 1);
            self.core().advance(self.costs.ipi_send);
            self.deliver(cpu, Vector::Kick);
        } else {
            self.wake(cpu, self.kernel.preempt_at(cpu).max(self.core().clock.get()));
        }
    }

    /// Leaves the CPU to whoever is next. Returns when the task runs again, maybe elsewhere; at once if nobody else is
    /// there and the task may go on; and also for a task that ends, whose coroutine must then return.
    pub(crate) fn switch_away(&'static self, me: TaskIndex, fate: Fate) {
        let cpu = self.cpu();
        let core = &self.cores[cpu];
        let task = self.kernel.task(me);
        if fate == Fate::Queue {
            if self.kernel.runs[cpu].queue.borrow().is_empty() {
                return;
            }
            self.make_runnable(me);
        }
        core.irqs.set(Irqs::Off);
        let next = self.pick(cpu);
        if next == Running::Task(me) {
            task.state.set(TaskState::Running);
            self.irqs_on(cpu);
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
        fiber::suspend();
        let cpu = self.cpu();
        self.irqs_on(cpu);
    }

    /// The next of the CPU's queue, or of the longest way round, or the idle thread.
    fn pick(&self, cpu: usize) -> Running {
        let mut queues = self;
        let Some(index) = scheduling::pick(&mut queues, cpu) else { return Running::Idle };
        let task = self.kernel.task(index);
        task.state.set(TaskState::Running);
        task.on_cpu.set(Some(cpu));
        task.cpu.set(cpu);
        Running::Task(index)
    }

    /// Runs the protocol for whoever is next.
    fn load(&'static self, cpu: usize, next: Running) {
        let core = &self.cores[cpu];
        self.kernel.count(|counters| counters.switches += 1);
        core.advance_for(Cause::Kernel, self.costs.context_switch);
        let irqs = IrqsOff::assume();
        core.within(Cause::Switch, || {
            core.arrival.set(Arrival::InPlace);
            self.with_cpu(cpu, |handle| match next {
                Running::Idle => handle.enter_lazy(&irqs),
                Running::Task(index) => handle.switch_to(self.kernel.task(index).process.space(), &irqs),
            });
            core.advance(self.cycles_of_switch(cpu, next));
        });
    }

    /// The instructions of the call that [`load`](Self::load) made: which way it went is known when it has returned.
    fn cycles_of_switch(&self, cpu: usize, next: Running) -> u64 {
        let calls = &self.costs.calls;
        match (next, self.cores[cpu].arrival.get()) {
            (Running::Idle, _) => calls.enter_lazy,
            (Running::Task(_), Arrival::Kept) => calls.current_slot,
            (Running::Task(_), Arrival::Flushed) => calls.new_slot,
            // The CPU belongs to whoever leaves until `commit`.
            (Running::Task(_), Arrival::InPlace) => match self.kernel.runs[cpu].running.get() {
                Running::Idle => calls.leave_lazy,
                Running::Task(_) => calls.same_space,
            },
        }
    }

    /// From here on the CPU belongs to `next`; nothing may yield before the fiber suspends or ends.
    fn commit(&self, cpu: usize, next: Running) {
        let (core, run) = (&self.cores[cpu], &self.kernel.runs[cpu]);
        run.running.set(next);
        core.class.set(if next == Running::Idle { Class::Idle } else { Class::Task });
        core.cause.set(Cause::Kernel);
        run.slice_end.set(core.clock.get() + self.costs.time_slice);
        self.schedule(cpu, core.clock.get());
    }

    pub(crate) fn irqs_on(&'static self, cpu: usize) {
        let core = &self.cores[cpu];
        core.irqs.set(Irqs::On);
        self.forget_limits();
        if core.takes_at() <= core.clock.get() {
            self.take_interrupts(cpu);
        }
    }

    /// The idle thread of a CPU. Never returns: the run ends without it.
    pub(crate) fn idle_main(&'static self, cpu: usize) {
        let core = &self.cores[cpu];
        let run = &self.kernel.runs[cpu];
        // The first turn comes with the first wake-up: until then the CPU has idled since the run began.
        core.advance_to(self.now(), Cause::Idle);
        loop {
            core.irqs.set(Irqs::Off);
            let next = self.pick(cpu);
            if next != Running::Idle {
                self.kernel.idle.remove(cpu);
                self.load(cpu, next);
                self.commit(cpu, next);
                fiber::suspend();
                continue;
            }
            self.kernel.idle.insert(cpu);
            core.advance_for(Cause::Idle, self.costs.halt_entry);
            self.irqs_on(cpu);
            if run.queue.borrow().is_empty() {
                run.halted.set(Halt::Halted);
                self.sleep_until(core.due(), Cause::Idle);
                run.halted.set(Halt::Awake);
            }
            self.sync(if self.kernel.only_pinned_wait(cpu) { NEVER } else { 0 });
        }
    }

    fn task_main(&'static self, me: TaskIndex, program: Task) {
        self.irqs_on(self.cpu());
        self.return_to_user();
        super::calls::run(self, me, program);
        self.enter_kernel();
        self.end_task(me);
    }

    fn end_task(&'static self, me: TaskIndex) {
        let task = self.kernel.task(me);
        task.process.leave(self);
        task.state.set(TaskState::Ended);
        let joiners = std::mem::take(&mut *task.joiners.borrow_mut());
        joiners.into_iter().for_each(|joiner| self.make_runnable(joiner));
        let kernel = &self.kernel;
        kernel.live_tasks.set(kernel.live_tasks.get() - 1);
        kernel.ended_at.set(kernel.ended_at.get().max(self.core().clock.get()));
        kernel.note_progress(self.core().clock.get());
        self.switch_away(me, Fate::End);
    }

    /// From the program into the kernel.
    pub(crate) fn enter_kernel(&'static self) {
        let cpu = self.cpu();
        let core = &self.cores[cpu];
        core.ring.set(Ring::Kernel);
        core.cause.set(Cause::Kernel);
        if self.isolates() {
            core.irqs.set(Irqs::Off);
            self.with_cpu(cpu, |handle| handle.enter_kernel(&IrqsOff::assume()));
            self.irqs_on(cpu);
        }
    }

    /// And back.
    pub(crate) fn return_to_user(&'static self) {
        let cpu = self.cpu();
        let core = &self.cores[cpu];
        if self.isolates() {
            core.irqs.set(Irqs::Off);
            self.with_cpu(cpu, |handle| handle.exit_to_user(&IrqsOff::assume()));
            core.ring.set(Ring::User);
            self.irqs_on(cpu);
        }
        core.ring.set(Ring::User);
        core.cause.set(Cause::User);
    }

    pub(crate) fn isolates(&self) -> bool {
        self.tlb.policy().isolation == tlbkit::Isolation::On
    }

    /// Sleeps until a wake-up makes the task run again.
    pub(crate) fn block(&'static self, me: TaskIndex) {
        self.kernel.task(me).state.set(TaskState::Blocked);
        self.switch_away(me, Fate::Block);
    }

    /// Charges what follows the last wake-up of each CPU: idling is charged when it ends, and this never did.
    pub(crate) fn idle_to_the_end(&self) {
        let end = self.kernel.ended_at.get();
        self.cores.iter().for_each(|core| core.advance_to(end, Cause::Idle));
    }

    /// True if nothing will ever happen again.
    pub(crate) fn is_done(&self) -> bool {
        self.kernel.live_tasks.get() == 0 || self.failure.get().is_some()
    }
}
