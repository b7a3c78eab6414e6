//! Who runs which task when one CPU wakes and another comes by.

use std::cell::Cell;
use std::rc::Rc;

use tlbkit_workloads::calls::TaskRandom;

use super::task::TaskSlot;
use crate::engine::core::NEVER;
use crate::engine::fiber::Fiber;
use crate::engine::ledger::Cause;
use crate::engine::world::World;
use crate::run::keep::Keep;
use crate::run::stage::{Stage, rehearse};

/// When the interrupt for the tasks of CPU 0 is due.
const KICK_AT: u64 = 100_000;

/// Puts a task into the queue of CPU 0: it never lets go of the CPU that takes it.
fn queue_task(world: &'static World, pinned: Option<usize>) -> &'static TaskSlot {
    let slot = TaskSlot::new(world.new_process(), 0, TaskRandom::new(1, 0));
    let fiber = Fiber::new(|| world.sleep_until(NEVER, Cause::User));
    *slot.fiber.borrow_mut() = Some(fiber.unwrap());
    slot.pinned.set(pinned);
    let kernel = &world.kernel;
    let index = kernel.tasks.borrow().len() as u32;
    kernel.tasks.borrow_mut().push(Keep::new(Box::new(slot)));
    kernel.runs[0].queue.borrow_mut().push_back(index);
    kernel.note_queued(0, kernel.task(index));
    kernel.task(index)
}

/// CPU 0 has halted; then an interrupt says that there are tasks, and while it is being entered CPU 1 acts.
fn wake_and_come_by(stage: &mut Stage, world: &'static World) {
    world.cores[0].kick_due.set(KICK_AT);
    world.schedule(0, KICK_AT);
    world.schedule(1, KICK_AT + 1);
    stage.turn(world);
}

fn halt_first_cpu(stage: &mut Stage, world: &'static World) {
    stage.boot(world).unwrap();
    world.schedule(0, 0);
    stage.turn(world);
    world.stop();
    world.kernel.idle.remove(0);
}

/// Who takes the tasks of CPU 0, by where they are pinned.
fn takers<const TASKS: usize>(pins: [Option<usize>; TASKS]) -> [Option<usize>; TASKS] {
    let takers = Cell::new([None; TASKS]);
    rehearse(2, |stage, world| {
        halt_first_cpu(stage, world);
        let tasks = pins.map(|pinned| queue_task(world, pinned));
        wake_and_come_by(stage, world);
        takers.set(tasks.map(|task| task.on_cpu.get()));
    });
    takers.get()
}

#[test]
fn whoever_comes_by_before_a_cpu_is_awake_takes_its_first_task() {
    assert_eq!(takers([None, None]), [Some(1), Some(0)]);
}

#[test]
fn a_task_behind_a_pinned_one_is_not_kept_from_others() {
    assert_eq!(takers([Some(0), None]), [Some(0), Some(1)]);
}

#[test]
fn a_cpu_that_wakes_for_a_pinned_task_takes_it_in_the_same_turn() {
    let found = Rc::new(Cell::new(None));
    rehearse(2, |stage, world| {
        halt_first_cpu(stage, world);
        let (task, found) = (queue_task(world, Some(0)), Rc::clone(&found));
        let comes_by = Fiber::new(move || {
            found.set(task.on_cpu.get());
            world.sleep_until(NEVER, Cause::Idle);
        });
        stage.idle_fibers[1] = Some(comes_by.unwrap());
        wake_and_come_by(stage, world);
    });
    assert_eq!(found.get(), Some(0));
}
