//! The simulated kernel: tasks, a run queue per CPU, processes, channels, and the system calls that programs make.
//!
//! | file | what |
//! |---|---|
//! | `task` | one task |
//! | `sched` | run queues, switching, blocking, waking, idling |
//! | `place` | on which CPU a woken task goes |
//! | `process` | an address space and its threads |
//! | `calls` | [`tlbkit_workloads::Os`] |
//! | `touch` | a program's loads, stores and computing |
//! | `window` | reading files through windows of the kernel's own addresses |
//! | `phys`, `memory` | physical memory, and what using it costs |

mod calls;
mod memory;
pub(crate) mod phys;
mod place;
pub(crate) mod process;
pub(crate) mod sched;
pub(crate) mod task;
#[cfg(test)]
mod tests;
mod touch;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tlbkit::sync::AtomicU64;

use crate::engine::core::NEVER;
use crate::run::RunError;
use crate::run::keep::Keep;
use crate::run::samples::Samples;
use place::CpuBits;
use process::Process;
use task::TaskSlot;

/// What a task may need to end once the run is over: far more than the slowest exit of a workload.
const END_CYCLES: u64 = 100_000_000;

/// How long programs may go on without a system call, a fault or an end: twice what the longest computation that can be
/// asked for in one call takes where the sibling thread of the core slows it down the most.
const QUIET_CYCLES: u64 = 1 << 34;

/// A task's index.
pub(crate) type TaskIndex = u32;

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Running {
    /// Its idle thread.
    Idle,
    /// A task.
    Task(TaskIndex),
}

/// The scheduler's part of a CPU: one line of the host.
#[repr(align(64))]
pub(crate) struct CpuRun {
    pub(crate) running: Cell<Running>,
    pub(crate) halted: Cell<Halt>,
    pub(crate) queue: RefCell<VecDeque<TaskIndex>>,
    /// Tasks in the queue that are not pinned.
    loose: Cell<u32>,
    pub(crate) slice_end: Cell<u64>,
}

const _: () = assert!(size_of::<CpuRun>() == 64);

/// Whether a CPU waits for an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Halt {
    /// It executes.
    Awake,
    /// It waits.
    Halted,
}

/// Whether the run's time is over, for all tasks as soon as it was for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// Not yet.
    Running,
    /// Yes.
    Over,
}

/// A counter that tasks block on.
#[derive(Debug, Default)]
pub(crate) struct ChannelState {
    count: u64,
    waiters: VecDeque<TaskIndex>,
}

/// What the kernel counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct KernelCounters {
    /// System calls.
    pub syscalls: u64,
    /// Page faults.
    pub faults: u64,
    /// Switches between tasks, or from a task to the idle thread and back.
    pub switches: u64,
    /// Tasks woken on another CPU than the one that woke them.
    pub remote_wakes: u64,
    /// Tasks that lost their CPU to another at the end of a time slice.
    pub preemptions: u64,
    /// Processes and threads started.
    pub tasks: u64,
}

/// All state of the kernel.
pub(crate) struct Kernel {
    pub(crate) runs: Vec<CpuRun>,
    pub(crate) tasks: RefCell<Vec<Keep<TaskSlot>>>,
    pub(crate) processes: RefCell<Vec<Keep<Process>>>,
    pub(crate) sets: RefCell<Vec<Keep<[AtomicU64]>>>,
    /// Spaces whose last lazy reference is gone.
    pub(crate) unreferenced: RefCell<Vec<usize>>,
    pub(crate) idle: CpuBits,
    /// CPUs whose queues hold a task that is not pinned.
    pub(crate) loose: CpuBits,
    pub(crate) live_tasks: Cell<usize>,
    pub(crate) score: Cell<u64>,
    pub(crate) samples: Samples,
    pub(crate) ended_at: Cell<u64>,
    pub(crate) counters: Cell<KernelCounters>,
    pub(crate) wrong_values: Cell<u64>,
    channels: RefCell<Vec<ChannelState>>,
    clock: Cell<Clock>,
    progress_at: Cell<u64>,
    limit_cycles: u64,
    seed: u64,
}

impl Kernel {
    pub(crate) fn new(cpus: usize, seed: u64, limit_cycles: Option<u64>, sample_cycles: Option<u64>) -> Self {
        let run = || CpuRun {
            running: Cell::new(Running::Idle),
            halted: Cell::new(Halt::Awake),
            queue: RefCell::default(),
            loose: Cell::new(0),
            slice_end: Cell::new(NEVER),
        };
        Self {
            runs: (0..cpus).map(|_| run()).collect(),
            tasks: RefCell::default(),
            processes: RefCell::default(),
            sets: RefCell::default(),
            unreferenced: RefCell::default(),
            idle: CpuBits::new(cpus),
            loose: CpuBits::new(cpus),
            live_tasks: Cell::new(0),
            score: Cell::new(0),
            samples: Samples::new(sample_cycles),
            ended_at: Cell::new(0),
            counters: Cell::default(),
            wrong_values: Cell::new(0),
            channels: RefCell::default(),
            clock: Cell::new(Clock::Running),
            progress_at: Cell::new(0),
            limit_cycles: limit_cycles.unwrap_or(NEVER),
            seed,
        }
    }

    pub(crate) fn is_halted(&self, cpu: usize) -> bool {
        self.runs[cpu].halted.get() == Halt::Halted
    }

    /// When the task on `cpu` must make room for another, if another waits.
    pub(crate) fn preempt_at(&self, cpu: usize) -> u64 {
        let run = &self.runs[cpu];
        if run.queue.borrow().is_empty() { NEVER } else { run.slice_end.get() }
    }

    /// When a run that does not end is given up: long after its limit, and later with every task that has to end. One
    /// without a limit takes as long as its rounds, and is given up when nothing comes of them any more.
    pub(crate) fn overdue_at(&self) -> u64 {
        if self.limit_cycles == NEVER {
            return self.progress_at.get().saturating_add(QUIET_CYCLES);
        }
        let ending = END_CYCLES.saturating_mul(self.live_tasks.get() as u64);
        self.limit_cycles.saturating_mul(4).saturating_add(ending)
    }

    /// The error of a run that does not end.
    pub(crate) fn overrun(&self, at_cycles: u64) -> RunError {
        let (tasks, limit_cycles) = (self.live_tasks.get(), self.limit_cycles);
        if limit_cycles == NEVER {
            return RunError::Quiet { tasks, at_cycles, since_cycles: self.progress_at.get() };
        }
        RunError::Overrun { tasks, at_cycles, limit_cycles }
    }

    /// A program did at `at` what none does that waits in vain for a word to change.
    pub(crate) fn note_progress(&self, at: u64) {
        self.progress_at.set(self.progress_at.get().max(at));
    }

    pub(crate) fn task(&self, index: TaskIndex) -> &'static TaskSlot {
        self.tasks.borrow()[index as usize].get()
    }

    /// True if tasks wait for `cpu` and all of them are pinned: nobody else can take one.
    fn only_pinned_wait(&self, cpu: usize) -> bool {
        let run = &self.runs[cpu];
        run.loose.get() == 0 && !run.queue.borrow().is_empty()
    }

    /// A task was put into the queue of `cpu`.
    fn note_queued(&self, cpu: usize, task: &TaskSlot) {
        if task.pinned.get().is_none() {
            let loose = &self.runs[cpu].loose;
            loose.set(loose.get() + 1);
            self.loose.insert(cpu);
        }
    }

    /// A task was taken out of the queue of `cpu`.
    fn note_dequeued(&self, cpu: usize, task: &TaskSlot) {
        if task.pinned.get().is_none() {
            let loose = &self.runs[cpu].loose;
            loose.set(loose.get() - 1);
            if loose.get() == 0 {
                self.loose.remove(cpu);
            }
        }
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut KernelCounters)) {
        let mut counters = self.counters.get();
        count(&mut counters);
        self.counters.set(counters);
    }

    fn with_channel<R>(&self, channel: u32, body: impl FnOnce(&mut ChannelState) -> R) -> R {
        let mut channels = self.channels.borrow_mut();
        let index = channel as usize;
        if channels.len() <= index {
            channels.resize_with(index + 1, ChannelState::default);
        }
        body(&mut channels[index])
    }
}
