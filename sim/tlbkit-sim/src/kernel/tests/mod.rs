//! Which CPU runs a task when one CPU wakes it and another one looks for work.

mod actors;
mod cores;
mod held_locks;
mod lru_lists;
mod memory;
mod mmap_lock;
mod start;

use std::cell::Cell;
use std::rc::Rc;

use tlbkit::PhysAddr;
use tlbkit_pmap::{Memory, Purpose};
use tlbkit_workloads::calls::TaskRandom;

use super::Kernel;
use super::memory::KernelMemory;
use super::task::{Affinity, Task};
use crate::multiprocessor::{Fiber, NEVER};
use crate::observer::Cause;
use crate::run::stage::{Stage, rehearse};

/// When the interrupt for the tasks of CPU 0 is due.
const KICK_AT: u64 = 100_000;

/// Puts a task into the queue of CPU 0: it never lets go of the CPU that takes it.
fn queue_task(kernel: &'static Kernel, pinned: Option<usize>) -> &'static Task {
    let fiber = Fiber::new(|| kernel.machine().sleep_until(NEVER, Cause::User)).unwrap();
    let task = Task::new(kernel.new_process(), 0, TaskRandom::new(1, 0), fiber);
    task.affinity.set(pinned.map_or(Affinity::All, Affinity::Cpu));
    let index = kernel.tasks.next_index();
    kernel.add_task(task);
    kernel.queues.push(0, index, &kernel.tasks);
    kernel.tasks.get(index)
}

/// CPU 0 has halted; then an interrupt says that there are tasks, and while it is being entered CPU 1 acts.
fn wake_and_come_by(stage: &mut Stage, kernel: &'static Kernel) {
    kernel.machine().processor(0).kick_at(KICK_AT);
    kernel.machine().schedule(0, KICK_AT);
    kernel.machine().schedule(1, KICK_AT + 1);
    stage.turn(kernel, || false);
}

fn halt_first_cpu(stage: &mut Stage, kernel: &'static Kernel) {
    stage.boot(kernel).unwrap();
    kernel.machine().schedule(0, 0);
    stage.turn(kernel, || false);
    kernel.machine().stop();
    kernel.queues.clear_idle(0);
}

/// Who takes the tasks of CPU 0, by where they are pinned.
fn takers<const TASKS: usize>(pins: [Option<usize>; TASKS]) -> [Option<usize>; TASKS] {
    let takers = Cell::new([None; TASKS]);
    rehearse(2, |stage, kernel| {
        halt_first_cpu(stage, kernel);
        let tasks = pins.map(|pinned| queue_task(kernel, pinned));
        wake_and_come_by(stage, kernel);
        takers.set(tasks.map(|task| task.on_cpu.get()));
    });
    takers.get()
}

#[test]
fn a_cpu_that_comes_by_before_another_is_awake_takes_its_first_task() {
    assert_eq!(takers([None, None]), [Some(1), Some(0)]);
}

#[test]
fn a_task_behind_a_pinned_one_is_not_kept_from_others() {
    assert_eq!(takers([Some(0), None]), [Some(0), Some(1)]);
}

#[test]
fn a_cpu_that_wakes_for_a_pinned_task_takes_it_in_the_same_turn() {
    let found = Rc::new(Cell::new(None));
    rehearse(2, |stage, kernel| {
        halt_first_cpu(stage, kernel);
        let (task, found) = (queue_task(kernel, Some(0)), Rc::clone(&found));
        act_first(stage, kernel, 1, move || found.set(task.on_cpu.get()));
        wake_and_come_by(stage, kernel);
    });
    assert_eq!(found.get(), Some(0));
}

/// Lets the idle thread of `cpu` do something first.
fn act_first(stage: &mut Stage, kernel: &'static Kernel, cpu: usize, act: impl FnOnce() + 'static) {
    let fiber = Fiber::new(move || {
        act();
        kernel.machine().sleep_until(NEVER, Cause::Idle);
    });
    stage.idle_fibers[cpu] = Some(fiber.unwrap());
    kernel.machine().schedule(cpu, 0);
}

#[test]
fn empty_entries_that_are_passed_over_take_as_long_as_their_loads() {
    let found = Rc::new(Cell::new(None));
    rehearse(1, |stage, kernel| {
        stage.boot(kernel).unwrap();
        let found = Rc::clone(&found);
        act_first(stage, kernel, 0, move || {
            let (memory, processor) = (KernelMemory(kernel), kernel.machine().running());
            let table = memory.alloc(12, Purpose::Table).unwrap().at;
            memory.store(PhysAddr(table.0 + 8 * 7), 1);
            let start = processor.now();
            let passed = memory.pass_empty(PhysAddr(table.0 + 8), 511, 3);
            let between = processor.now();
            assert!((0..18).all(|_| memory.load(table) == 0));
            found.set(Some((passed, between - start, processor.now() - between)));
        });
        stage.turn(kernel, || false);
    });
    let (passed, at_once, one_by_one) = found.get().expect("the CPU has looked");
    assert_eq!((passed, at_once), (6, one_by_one));
    assert!(at_once > 0, "loads take time");
}
