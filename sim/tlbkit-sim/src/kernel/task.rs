//! Processes and tasks. A process is an address space and the threads that run in it. A task is one thread: its
//! program's coroutine, the CPU where it runs, and the tasks that wait for its end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tlbkit::AddressSpace;
use tlbkit_pmap::{Retirement, TableLock, Vm};
use tlbkit_workloads::calls::TaskRandom;

use super::TaskIndex;
use super::mmap_lock::MmapLock;
use super::vma_locks::VmaLocks;
use crate::keep::Keep;
use crate::multiprocessor::{Fiber, Progress};

/// One process. Aligned to a line, so that which fields share lines does not depend on the host's allocator.
#[repr(align(64))]
pub(super) struct Process {
    pub(super) vm: Vm<'static>,
    /// The locks of page tables that `vm` was lent.
    pub(super) table_locks: &'static [TableLock],
    pub(super) mmap_lock: RefCell<MmapLock>,
    pub(super) vma_locks: VmaLocks,
    /// What was unmapped and has not come back, the oldest first.
    pub(super) retired: RefCell<VecDeque<Retirement>>,
    /// Threads that have not ended.
    pub(super) threads: Cell<usize>,
}

impl Process {
    /// What the protocol knows it by.
    pub(super) fn space(&self) -> &AddressSpace {
        self.vm.space()
    }
}

/// Where a task may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Affinity {
    /// On all CPUs.
    All,
    /// On this CPU.
    Cpu(usize),
    /// On this CPU, where it begins, and on the other thread of its core.
    Core(usize),
}

/// One task. What the scheduler looks at is one line of the host, and the coroutine begins the next.
#[repr(C, align(64))]
pub(super) struct Task {
    pub(super) process: &'static Process,
    /// The CPU where it runs, or ran last.
    pub(super) cpu: Cell<usize>,
    /// The CPU that runs it or has not finished to switch away from it. No other CPU may run it before that.
    pub(super) on_cpu: Cell<Option<usize>>,
    pub(super) affinity: Cell<Affinity>,
    random: Cell<TaskRandom>,
    pub(super) has_ended: Cell<bool>,
    fiber: RefCell<Option<Fiber>>,
    /// Tasks that wait for its end.
    pub(super) joiners: RefCell<Vec<TaskIndex>>,
}

const _: () = assert!(std::mem::offset_of!(Task, fiber) == 64);

impl Task {
    pub(super) fn new(process: &'static Process, cpu: usize, random: TaskRandom, fiber: Fiber) -> Self {
        Self {
            process,
            cpu: Cell::new(cpu),
            on_cpu: Cell::new(None),
            affinity: Cell::new(Affinity::All),
            random: Cell::new(random),
            has_ended: Cell::new(false),
            fiber: RefCell::new(Some(fiber)),
            joiners: RefCell::default(),
        }
    }

    /// True if it may run on one CPU, or on one core, only.
    pub(super) fn is_pinned(&self) -> bool {
        self.affinity.get() != Affinity::All
    }

    /// True if any other CPU may take it out of its queue.
    pub(super) fn may_move(&self) -> bool {
        !self.is_pinned() && self.on_cpu.get().is_none()
    }

    /// True if the other thread of its core may take it out of its queue.
    pub(super) fn may_change_thread(&self) -> bool {
        matches!(self.affinity.get(), Affinity::Core(_)) && self.on_cpu.get().is_none()
    }

    /// The next number of the task's own stream.
    pub(super) fn random(&self) -> u64 {
        let mut random = self.random.get();
        let number = random.next();
        self.random.set(random);
        number
    }

    /// Runs its coroutine until that suspends or ends.
    pub(super) fn resume(&self) {
        let mut fiber = self.fiber.borrow_mut();
        let progress = fiber.as_mut().map(Fiber::resume).expect("a queued task has a coroutine");
        if progress == Progress::Ended
            && let Some(ended) = fiber.take()
        {
            ended.recycle();
        }
    }
}

/// All tasks of a run, those that have ended included.
#[derive(Default)]
pub(super) struct Tasks(RefCell<Vec<Keep<Task>>>);

impl Tasks {
    pub(super) fn get(&self, index: TaskIndex) -> &'static Task {
        self.0.borrow()[index as usize].get()
    }

    /// The index of the task that is pushed next.
    pub(super) fn next_index(&self) -> TaskIndex {
        self.0.borrow().len() as TaskIndex
    }

    pub(super) fn push(&self, task: Task) {
        self.0.borrow_mut().push(Keep::new(Box::new(task)));
    }

    /// Drops the coroutines of tasks that have not ended.
    pub(super) fn drop_fibers(&self) {
        let tasks = self.0.take();
        tasks.iter().for_each(|task| drop(task.get().fiber.take()));
    }
}
