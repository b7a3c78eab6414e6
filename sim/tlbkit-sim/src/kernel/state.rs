//! All state of the kernel, and what its parts ask of each other through it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;

use tlbkit_pmap::{KernelMap, TableLock};

use super::TaskIndex;
use super::lru_lists::LruLists;
use super::phys::Phys;
use super::reclaim::Reclaimer;
use super::run_queues::{Queues, Running};
use super::settings::KernelSettings;
use super::task::{Process, Task, Tasks};
use crate::error::RunError;
use crate::keep::{Keep, KeptWords};
use crate::multiprocessor::{Multiprocessor, NEVER, suspend};
use crate::observer::Observer;

/// What a task may need to end once the run is over: far more than the slowest exit of a workload.
const END_CYCLES: u64 = 100_000_000;

/// How long programs may go on without a system call, a page fault or the end of a task. It is twice the time of the
/// longest computation that a program can ask for in one call, on a core whose other thread slows it down the most.
const QUIET_CYCLES: u64 = 1 << 34;

/// A counter that tasks block on.
#[derive(Debug, Default)]
pub(super) struct ChannelState {
    pub(super) count: u64,
    pub(super) waiters: VecDeque<TaskIndex>,
}

/// The kernel of one machine.
pub(crate) struct Kernel {
    pub(super) machine: &'static Multiprocessor,
    pub(super) phys: Phys,
    /// The kernel's own page tables.
    pub(super) map: &'static KernelMap<'static>,
    pub(super) queues: Queues,
    pub(super) tasks: Tasks,
    /// Processes by the tokens of their spaces; none while one is being made.
    pub(super) processes: RefCell<Vec<Option<Keep<Process>>>>,
    /// The words of the processes' sets of CPUs.
    pub(super) sets: RefCell<Vec<KeptWords>>,
    /// The locks that spaces are lent, and those of spaces that have ended.
    pub(super) table_locks: RefCell<Vec<Keep<[TableLock]>>>,
    pub(super) free_locks: RefCell<Vec<&'static [TableLock]>>,
    pub(super) seed: u64,
    pub(super) settings: KernelSettings,
    pub(super) lru: LruLists,
    pub(super) reclaimer: Reclaimer,
    channels: RefCell<Vec<ChannelState>>,
    live_tasks: Cell<usize>,
    started_tasks: Cell<usize>,
    ended_at: Cell<u64>,
    progress_at: Cell<u64>,
    limit_cycles: u64,
    /// Whether the run's time is over: for all tasks as soon as it was for one.
    is_over: Cell<bool>,
    failure: OnceCell<RunError>,
}

impl Kernel {
    /// A kernel without tasks. After `limit_cycles`, if there is such a limit, its programs are told that the run is
    /// over.
    pub(crate) fn new(
        machine: &'static Multiprocessor,
        phys: Phys,
        map: &'static KernelMap<'static>,
        settings: KernelSettings,
        seed: u64,
        limit_cycles: Option<u64>,
    ) -> Self {
        Self {
            machine,
            phys,
            map,
            queues: Queues::new(machine.cpus()),
            tasks: Tasks::default(),
            processes: RefCell::default(),
            sets: RefCell::default(),
            table_locks: RefCell::default(),
            free_locks: RefCell::default(),
            seed,
            settings,
            lru: LruLists::new(settings.code, settings.sweep, machine.cpus()),
            reclaimer: Reclaimer::default(),
            channels: RefCell::default(),
            live_tasks: Cell::new(0),
            started_tasks: Cell::new(0),
            ended_at: Cell::new(0),
            progress_at: Cell::new(0),
            limit_cycles: limit_cycles.unwrap_or(NEVER),
            is_over: Cell::new(false),
            failure: OnceCell::new(),
        }
    }

    /// The machine that it runs on.
    pub(crate) fn machine(&self) -> &'static Multiprocessor {
        self.machine
    }

    /// The observer of the machine.
    pub(super) fn observer(&self) -> &'static Observer {
        self.machine.observer()
    }

    /// Frames of page tables and of data that are in use.
    pub(crate) fn frames_used(&self) -> (usize, usize) {
        self.phys.used()
    }

    pub(super) fn with_channel<R>(&self, channel: u32, body: impl FnOnce(&mut ChannelState) -> R) -> R {
        let mut channels = self.channels.borrow_mut();
        let index = channel as usize;
        if channels.len() <= index {
            channels.resize_with(index + 1, ChannelState::default);
        }
        body(&mut channels[index])
    }
}

/// How a run goes on and ends.
impl Kernel {
    /// Tasks that have not ended.
    pub(crate) fn live_tasks(&self) -> usize {
        self.live_tasks.get()
    }

    /// Adds a task, whose index is the one that [`Tasks::next_index`] has given.
    pub(super) fn add_task(&self, task: Task) {
        self.tasks.push(task);
        self.live_tasks.set(self.live_tasks.get() + 1);
        self.started_tasks.set(self.started_tasks.get() + 1);
    }

    /// A task ends on the running CPU.
    pub(super) fn note_task_end(&self) {
        let now = self.machine.running().now();
        self.live_tasks.set(self.live_tasks.get() - 1);
        self.ended_at.set(self.ended_at.get().max(now));
        self.note_progress();
    }

    /// When the last task ended.
    pub(crate) fn ended_at(&self) -> u64 {
        self.ended_at.get()
    }

    /// Notes that the running program has called the kernel, faulted or ended. A program that waits in vain for a word
    /// to change does none of these.
    pub(super) fn note_progress(&self) {
        let now = self.machine.running().now();
        self.progress_at.set(self.progress_at.get().max(now));
    }

    /// Whether the run's time is over at `now`, or was over for another task before.
    pub(super) fn is_over(&self, now: u64) -> bool {
        if now >= self.limit_cycles {
            self.is_over.set(true);
        }
        self.is_over.get()
    }

    /// When a run that does not end is given up. A run with a limit is given up long after it, and later for each task
    /// that was started: the last task to end may wait for all others, which takes as many turns as there are tasks if
    /// all tell one CPU of their end. A run without a limit lasts as long as its rounds; it is given up when its
    /// programs make no progress.
    pub(super) fn overdue_at(&self) -> u64 {
        if self.limit_cycles == NEVER {
            return self.progress_at.get().saturating_add(QUIET_CYCLES);
        }
        let ending = END_CYCLES.saturating_mul(self.started_tasks.get() as u64);
        self.limit_cycles.saturating_mul(4).saturating_add(ending)
    }

    /// Gives up a run that does not end.
    pub(super) fn fail_overdue(&self, at_cycles: u64) -> ! {
        let (tasks, limit_cycles) = (self.live_tasks.get(), self.limit_cycles);
        self.fail(if limit_cycles == NEVER {
            RunError::Quiet { tasks, at_cycles, since_cycles: self.progress_at.get() }
        } else {
            RunError::Overrun { tasks, at_cycles, limit_cycles }
        })
    }

    /// Ends the run with an error: nothing runs after this, so it does not return to its caller.
    pub(super) fn fail(&self, error: RunError) -> ! {
        let _ = self.failure.set(error);
        loop {
            suspend();
        }
    }

    /// Why the run was given up, if it was.
    pub(crate) fn failure(&self) -> Option<&RunError> {
        self.failure.get()
    }

    /// True if nothing will ever happen again.
    pub(crate) fn is_done(&self) -> bool {
        self.live_tasks.get() == 0 || self.failure.get().is_some()
    }

    /// CPUs that run a task.
    pub(crate) fn busy_cpus(&self) -> impl Iterator<Item = usize> {
        (0..self.machine.cpus()).filter(|&cpu| self.queues.running(cpu) != Running::Idle)
    }
}
