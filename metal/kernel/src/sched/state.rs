//! What the scheduler knows, and the one lock for all of it, which is taken with interrupts off.
//!
//! A context switch holds the lock until it is on the other stack, so that a task is never runnable while its stack is
//! still in use.

use core::sync::atomic::{AtomicU32, Ordering};

use spin::{Mutex, MutexGuard};
use tlbkit_x86::interrupts::{self, Interrupts};

use super::queue::Queue;
use super::task::{MOST_TASKS, Task, TaskIndex};
use crate::arch::cpu;
use crate::layout::MAX_CPUS;

/// Channels that there are.
pub(super) const MOST_CHANNELS: usize = 4096;

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Running {
    Idle,
    Task(TaskIndex),
}

/// A counter that tasks block on.
pub(super) struct Channel {
    pub(super) count: u64,
    pub(super) waiters: Queue,
}

pub(super) struct Sched {
    pub(super) tasks: [Task; MOST_TASKS],
    pub(super) queues: [Queue; MAX_CPUS],
    pub(super) running: [Running; MAX_CPUS],
    /// Stack pointers of idle threads that are not running.
    pub(super) idle_stacks: [u64; MAX_CPUS],
    /// CPUs whose idle thread found nothing.
    pub(super) idle: u64,
    pub(super) channels: [Channel; MOST_CHANNELS],
    pub(super) started: u64,
}

pub(super) static SCHED: Mutex<Sched> = Mutex::new(Sched {
    tasks: [const { Task::new() }; MOST_TASKS],
    queues: [const { Queue::new() }; MAX_CPUS],
    running: [Running::Idle; MAX_CPUS],
    idle_stacks: [0; MAX_CPUS],
    idle: 0,
    channels: [const { Channel { count: 0, waiters: Queue::new() } }; MOST_CHANNELS],
    started: 0,
});

/// Tasks that have not ended.
pub(super) static LIVE: AtomicU32 = AtomicU32::new(0);

/// The scheduler, with interrupts off for as long as it is held.
pub(super) struct Held {
    pub(super) sched: MutexGuard<'static, Sched>,
    /// What `release` goes back to.
    pub(super) before: Interrupts,
}

pub(super) fn hold() -> Held {
    // SAFETY: ring 0.
    let before = unsafe { interrupts::save_and_disable() };
    Held { sched: SCHED.lock(), before }
}

impl Held {
    pub(super) fn release(self) {
        drop(self.sched);
        // SAFETY: ring 0; if they were enabled before, handlers are in place.
        unsafe { interrupts::restore(self.before) };
    }

    pub(super) fn me(&self) -> TaskIndex {
        match self.sched.running[cpu::index() as usize] {
            Running::Task(index) => index,
            Running::Idle => unreachable!("the idle thread asks for nothing"),
        }
    }
}

/// True while a task lives.
pub(crate) fn is_anybody_left() -> bool {
    // Acquire: partner is the AcqRel of `end`: what the last task counted is there.
    LIVE.load(Ordering::Acquire) > 0
}
