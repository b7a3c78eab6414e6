//! Tasks on CPUs: a queue each, idle threads, blocking and waking, switching. The same rules as the simulator's kernel.
//!
//! One lock for all of it, taken with interrupts off. Whoever switches holds it until it is on the other stack, so
//! that a task is never found runnable while its stack is still in use.

mod place;
mod queue;
mod switch;
mod task;

use core::sync::atomic::{AtomicU32, Ordering};

use spin::{Mutex, MutexGuard};

use crate::MAX_CPUS;
use crate::arch::{apic, cpu};
use crate::machine::counters::{self, Counter};
use crate::process::Process;
use queue::Queue;
pub(crate) use switch::idle;
use task::{State, Task};

/// Most tasks at a time.
pub(crate) const MOST_TASKS: usize = 512;
const MOST_CHANNELS: usize = 4096;

/// Index of a task's slot.
pub(crate) type TaskIndex = usize;

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Running {
    Idle,
    Task(TaskIndex),
}

/// A counter that tasks block on.
struct Channel {
    count: u64,
    waiters: Queue,
}

struct Sched {
    tasks: [Task; MOST_TASKS],
    queues: [Queue; MAX_CPUS],
    running: [Running; MAX_CPUS],
    /// Stack pointers of idle threads that are not running.
    idle_stacks: [u64; MAX_CPUS],
    /// CPUs whose idle thread found nothing.
    idle: u64,
    channels: [Channel; MOST_CHANNELS],
    started: u64,
}

static SCHED: Mutex<Sched> = Mutex::new(Sched {
    tasks: [const { Task::new() }; MOST_TASKS],
    queues: [const { Queue::new() }; MAX_CPUS],
    running: [Running::Idle; MAX_CPUS],
    idle_stacks: [0; MAX_CPUS],
    idle: 0,
    channels: [const { Channel { count: 0, waiters: Queue::new() } }; MOST_CHANNELS],
    started: 0,
});

/// Tasks that have not ended.
static LIVE: AtomicU32 = AtomicU32::new(0);

/// The scheduler, with interrupts off for as long as it is held.
struct Held {
    sched: MutexGuard<'static, Sched>,
    were_on: bool,
}

fn hold() -> Held {
    let were_on = tlbkit_x86::are_on();
    // SAFETY: ring 0.
    unsafe { tlbkit_x86::off() };
    Held { sched: SCHED.lock(), were_on }
}

impl Held {
    fn release(self) {
        drop(self.sched);
        if self.were_on {
            // SAFETY: they were on before.
            unsafe { tlbkit_x86::on() };
        }
    }

    fn me(&self) -> TaskIndex {
        match self.sched.running[cpu::index() as usize] {
            Running::Task(index) => index,
            Running::Idle => unreachable!("the idle thread asks for nothing"),
        }
    }
}

impl Sched {
    /// Puts a task into a queue and tells the CPU.
    fn make_runnable(&mut self, index: TaskIndex) {
        let to = self.place(index);
        self.tasks[index].state = State::Queued;
        self.tasks[index].cpu = to;
        self.queues[to].push(&mut self.tasks, index);
        let was_idle = self.idle >> to & 1 == 1;
        self.idle &= !(1 << to);
        if to != cpu::index() as usize {
            counters::add(Counter::RemoteWakes, 1);
            if was_idle {
                apic::kick(to as u32);
            }
        }
    }
}

/// True while a task lives.
pub(crate) fn is_anybody_left() -> bool {
    // Acquire: partner is the AcqRel of `end`: what the last task counted is there.
    LIVE.load(Ordering::Acquire) > 0
}

/// Starts `program` in `process`.
pub(crate) fn start(program: tlbkit_workloads::Task, process: &'static Process) -> TaskIndex {
    counters::add(Counter::Tasks, 1);
    // Relaxed: the task that starts another lives, so it is not zero.
    LIVE.fetch_add(1, Ordering::Relaxed);
    process.join();
    let mut held = hold();
    let sched = &mut *held.sched;
    let found = sched.tasks.iter().position(|task| task.state == State::Free);
    let index = found.expect("a slot for another task");
    sched.started += 1;
    sched.tasks[index].prepare(index, program, process, sched.started - 1);
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

/// The running task ends; its process has been left.
pub(crate) fn end() -> ! {
    let mut held = hold();
    let me = held.me();
    let sched = &mut *held.sched;
    sched.tasks[me].state = State::Ended;
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
    if held.sched.tasks[task].state != State::Ended {
        let me = held.me();
        held.sched.tasks[task].joiner = Some(me);
        held.sched.tasks[me].state = State::Blocked;
        switch::away(held);
        held = hold();
    }
    held.sched.tasks[task].state = State::Free;
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
    held.sched.tasks[me].state = State::Moving;
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
    sched.tasks[me].state = State::Queued;
    sched.queues[here].push(&mut sched.tasks, me);
    switch::away(held);
}

/// Takes one from a channel, or blocks until somebody adds one.
pub(crate) fn wait(channel: u32) {
    let mut held = hold();
    let me = held.me();
    let sched = &mut *held.sched;
    let state = &mut sched.channels[channel as usize];
    if state.count > 0 {
        state.count -= 1;
        return held.release();
    }
    sched.tasks[me].state = State::Blocked;
    state.waiters.push(&mut sched.tasks, me);
    switch::away(held);
}

/// Adds one to a channel, or hands it to who waits longest.
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
