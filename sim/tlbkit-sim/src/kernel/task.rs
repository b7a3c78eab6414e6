//! One task: its program's coroutine, where it runs, and who waits for it.

use std::cell::{Cell, RefCell};

use tlbkit_workloads::calls::TaskRandom;

use super::TaskIndex;
use super::process::Process;
use crate::engine::fiber::Fiber;

/// What a task is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskState {
    /// On a CPU, or on its way off.
    Running,
    /// In a run queue.
    Queued,
    /// Waiting for a channel or for another task.
    Blocked,
    /// Its program has returned.
    Ended,
}

/// One task. What the scheduler looks at is one line of the host, and the coroutine begins the next.
#[repr(C, align(64))]
pub(crate) struct TaskSlot {
    pub(crate) process: &'static Process,
    /// Where it runs or ran last.
    pub(crate) cpu: Cell<usize>,
    /// The CPU whose stack it is still on: nobody else may run it until that CPU has left it.
    pub(crate) on_cpu: Cell<Option<usize>>,
    pub(crate) pinned: Cell<Option<usize>>,
    random: Cell<TaskRandom>,
    pub(crate) state: Cell<TaskState>,
    pub(crate) fiber: RefCell<Option<Fiber>>,
    pub(crate) joiners: RefCell<Vec<TaskIndex>>,
}

const _: () = assert!(std::mem::offset_of!(TaskSlot, fiber) == 64);

impl TaskSlot {
    pub(crate) fn new(process: &'static Process, cpu: usize, random: TaskRandom) -> Self {
        Self {
            process,
            state: Cell::new(TaskState::Blocked),
            fiber: RefCell::new(None),
            cpu: Cell::new(cpu),
            on_cpu: Cell::new(None),
            pinned: Cell::new(None),
            joiners: RefCell::default(),
            random: Cell::new(random),
        }
    }

    /// The next number of the task's own stream.
    pub(crate) fn random(&self) -> u64 {
        let mut random = self.random.get();
        let number = random.next();
        self.random.set(random);
        number
    }
}
