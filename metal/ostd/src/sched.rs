//! Tasks that stay on their CPU and run in turn, each in the space that it says: the least scheduler that OSTD takes.

use core::any::Any;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ostd::cpu::PinCurrentCpu;
use ostd::cpu::{CpuId, num_cpus};
use ostd::mm::vm_space::VmSpace;
use ostd::sync::{LocalIrqDisabled, SpinLock};
use ostd::task::scheduler::info::CommonSchedInfo;
use ostd::task::scheduler::{EnqueueFlags, LocalRunQueue, Scheduler, UpdateFlags, inject_scheduler};
use ostd::task::{Task, TaskOptions, disable_preempt, inject_post_schedule_handler};

/// What the scheduler knows of a task.
pub struct Place {
    cpu: u32,
    /// The space that the task runs in; none for a task of the kernel.
    space: SpinLock<Option<Arc<VmSpace>>, LocalIrqDisabled>,
}

/// Hands the machine to [`spawn`]ed tasks.
pub fn begin() {
    let queues: Vec<_> = (0..num_cpus()).map(|_| SpinLock::new(Queue::default())).collect();
    inject_scheduler(Box::leak(Box::new(Queues(queues))));
    inject_post_schedule_handler(|| {
        let space = current(|place| place.space.lock().clone());
        if let Some(space) = space {
            space.activate();
        }
    });
}

/// A task that runs on `cpu` for ever, or until it returns.
pub fn spawn(cpu: u32, run: impl FnOnce() + Send + 'static) {
    let place = Place { cpu, space: SpinLock::new(None) };
    TaskOptions::new(run).data(place).spawn().expect("there is memory for a task");
}

/// The running task goes on in `space`, now and whenever it is switched to.
pub fn enter(space: &Arc<VmSpace>) {
    let left = current(|place| place.space.lock().replace(Arc::clone(space)));
    space.activate();
    drop(left);
}

/// The running task is of the kernel from now on; what is loaded stays so.
pub fn leave() {
    drop(current(|place| place.space.lock().take()));
}

fn current<R>(f: impl FnOnce(&Place) -> R) -> R {
    let task = Task::current().expect("a task runs");
    f(place(task.data()))
}

fn place(data: &Box<dyn Any + Send + Sync>) -> &Place {
    (**data).downcast_ref().expect("every task was spawned here")
}

struct Queues(Vec<SpinLock<Queue, LocalIrqDisabled>>);

#[derive(Default)]
struct Queue {
    current: Option<Arc<Task>>,
    waiting: VecDeque<Arc<Task>>,
}

impl Queues {
    fn here<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        let guard = disable_preempt();
        f(&mut self.0[u32::from(guard.current_cpu()) as usize].lock())
    }
}

impl Scheduler for Queues {
    fn enqueue(&self, task: Arc<Task>, _: EnqueueFlags) -> Option<CpuId> {
        let cpu = place(task.data()).cpu;
        let id = CpuId::try_from(cpu as usize).expect("a CPU of the machine");
        if task.cpu().set_if_is_none(id).is_ok() {
            self.0[cpu as usize].lock().waiting.push_back(task);
        }
        None
    }

    fn local_rq_with(&self, f: &mut dyn FnMut(&dyn LocalRunQueue)) {
        self.here(|queue| f(queue));
    }

    fn mut_local_rq_with(&self, f: &mut dyn FnMut(&mut dyn LocalRunQueue)) {
        self.here(|queue| f(queue));
    }
}

impl LocalRunQueue for Queue {
    fn current(&self) -> Option<&Arc<Task>> {
        self.current.as_ref()
    }

    fn update_current(&mut self, flags: UpdateFlags) -> bool {
        flags != UpdateFlags::Tick && !self.waiting.is_empty()
    }

    fn try_pick_next(&mut self) -> Option<&Arc<Task>> {
        let next = self.waiting.pop_front()?;
        if let Some(last) = self.current.replace(next) {
            self.waiting.push_back(last);
        }
        self.current.as_ref()
    }

    fn dequeue_current(&mut self) -> Option<Arc<Task>> {
        self.current.take().inspect(|task| task.cpu().set_to_none())
    }
}
