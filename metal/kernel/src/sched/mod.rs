//! Tasks on CPUs: a run queue and an idle thread for each CPU, blocking, waking and switching.
//!
//! Where a task goes, and what an idle CPU takes from others, is decided by the rules of `tlbkit-workloads`, which
//! every kernel here shares.

mod place;
mod queue;
mod state;
mod switch;
mod task;

use core::sync::atomic::Ordering;

use crate::arch::cpu;
use crate::counters::{self, Counter};
use crate::process_table::Process;
pub(crate) use state::is_anybody_left;
use state::{LIVE, MOST_CHANNELS, hold};
pub(crate) use switch::idle;
use task::{TaskIndex, TaskState};

/// Starts `program` in `process`.
pub(crate) fn start(program: tlbkit_workloads::Task, process: &'static Process) -> TaskIndex {
    counters::add(Counter::Tasks, 1);
    // Relaxed: the task that starts another lives, so it is not zero.
    LIVE.fetch_add(1, Ordering::Relaxed);
    process.add_thread();
    let mut held = hold();
    let sched = &mut *held.sched;
    let found = sched.tasks.iter().position(|task| task.state == TaskState::Free);
    let index = found.expect("a slot for another task");
    sched.started += 1;
    sched.tasks[index].prepare(index, program, process, sched.started - 1, switch::task_begin);
    sched.tasks[index].cpu = cpu::index() as usize;
    sched.make_runnable(index);
    held.release();
    index
}

/// The process of the running task.
pub(crate) fn process() -> &'static Process {
    let held = hold();
    let process = held.sched.tasks[held.me()].process();
    held.release();
    process
}

/// Its slot, which no other task has while it lives.
pub(crate) fn task() -> TaskIndex {
    let held = hold();
    let me = held.me();
    held.release();
    me
}

/// The running task ends; its process has been left.
pub(crate) fn end() -> ! {
    let mut held = hold();
    let me = held.me();
    let sched = &mut *held.sched;
    sched.tasks[me].state = TaskState::Ended;
    if let Some(joiner) = sched.tasks[me].joiner.take() {
        sched.make_runnable(joiner);
    }
    // AcqRel: partner is `is_anybody_left`.
    LIVE.fetch_sub(1, Ordering::AcqRel);
    switch::away(held);
    unreachable!("a task that has ended runs again")
}

/// Waits until `task` has ended; its slot is free then.
pub(crate) fn join(task: TaskIndex) {
    let mut held = hold();
    if held.sched.tasks[task].state != TaskState::Ended {
        let me = held.me();
        held.sched.tasks[task].joiner = Some(me);
        held.sched.tasks[me].state = TaskState::Blocked;
        switch::away(held);
        held = hold();
    }
    held.sched.tasks[task].state = TaskState::Free;
    held.release();
}

/// Keeps the running task on `cpu`, and goes there.
pub(crate) fn pin(to: usize) {
    let mut held = hold();
    let me = held.me();
    held.sched.tasks[me].pinned = Some(to);
    if to == cpu::index() as usize {
        return held.release();
    }
    held.sched.tasks[me].state = TaskState::Moving;
    switch::away(held);
}

/// Lets another task of this CPU run.
pub(crate) fn yield_now() {
    let mut held = hold();
    let here = cpu::index() as usize;
    if held.sched.queues[here].is_empty() {
        return held.release();
    }
    let me = held.me();
    let sched = &mut *held.sched;
    sched.tasks[me].state = TaskState::Queued;
    sched.queues[here].push(&mut sched.tasks, me);
    switch::away(held);
}

/// Takes one from a channel, or blocks until a task adds one.
pub(crate) fn wait(channel: u32) {
    let mut held = hold();
    let me = held.me();
    let sched = &mut *held.sched;
    let state = &mut sched.channels[channel as usize];
    if state.count > 0 {
        state.count -= 1;
        return held.release();
    }
    sched.tasks[me].state = TaskState::Blocked;
    state.waiters.push(&mut sched.tasks, me);
    switch::away(held);
}

/// Adds one to a channel, or passes it to the task that has waited longest.
pub(crate) fn post(channel: u32) {
    let mut held = hold();
    let sched = &mut *held.sched;
    let state = &mut sched.channels[channel as usize];
    match state.waiters.pop(&mut sched.tasks) {
        Some(waiter) => sched.make_runnable(waiter),
        None => state.count += 1,
    }
    held.release();
}

/// True if such a channel exists.
pub(crate) const fn has_channel(channel: u64) -> bool {
    channel < MOST_CHANNELS as u64
}
