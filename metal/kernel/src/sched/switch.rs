//! Switching from one kernel stack to another. The task that leaves runs the protocol's switch for the task that comes.

use core::arch::global_asm;
use core::mem;

use tlbkit::IrqsOff;
use tlbkit_workloads::scheduling;
use tlbkit_x86::interrupts::{self, Interrupts};

use super::state::{Held, Running, SCHED, Sched, hold, is_anybody_left};
use super::task::{TaskIndex, TaskState, kernel_stack_top};
use crate::arch::{cpu, tables};
use crate::counters::{self, Counter};
use crate::{command_line, machine, user};

global_asm!(include_str!("switch.s"), first_steps = sym first_steps, options(att_syntax));

unsafe extern "C" {
    /// Where a new task begins, on a stack that `Task::prepare` has made.
    pub(super) fn task_begin();
    fn switch_stacks(save: *mut u64, load: u64);
    fn enter_user(entry: u64, stack: u64, argument: u64) -> !;
}

/// Switches to the next task; the state of the running task says why. Returns when the task runs again, possibly on
/// another CPU, or at once if it is itself the next.
pub(super) fn away(mut held: Held) {
    let before = held.before;
    let here = cpu::index() as usize;
    let me = held.me();
    let sched = &mut *held.sched;
    let next = scheduling::pick(sched, here).map_or(Running::Idle, Running::Task);
    if next == Running::Task(me) {
        sched.tasks[me].state = TaskState::Running;
        return held.release();
    }
    let save = &raw mut sched.tasks[me].stack;
    let load = sched.load(here, next);
    if sched.tasks[me].state == TaskState::Moving {
        sched.make_runnable(me);
    }
    jump(held, save, load);
    resume(before);
}

impl Sched {
    /// Runs the protocol's context switch for the next task, and returns its stack pointer.
    fn load(&mut self, here: usize, next: Running) -> u64 {
        counters::add(Counter::Switches, 1);
        let irqs = IrqsOff::assume();
        self.running[here] = next;
        match next {
            Running::Idle => {
                machine::cpu().enter_lazy(&irqs);
                self.idle_stacks[here]
            }
            Running::Task(index) => {
                let task = &mut self.tasks[index];
                task.state = TaskState::Running;
                task.cpu = here;
                machine::cpu().switch_to(task.process().space(), &irqs);
                machine::pass();
                tables::set_kernel_stack(kernel_stack_top(index));
                task.stack
            }
        }
    }
}

/// The lock goes along to the other stack, which gives it back.
fn jump(held: Held, save: *mut u64, load: u64) {
    mem::forget(held);
    // SAFETY: `load` was saved by this function, or made by `Task::prepare`, and no other CPU loads it, since the lock
    // is held.
    unsafe { switch_stacks(save, load) }
}

/// On the new stack: gives back the lock that came along.
fn resume(interrupts: Interrupts) {
    // SAFETY: the code that jumped here holds it.
    unsafe { SCHED.force_unlock() };
    // SAFETY: ring 0; if they were enabled when this stack was left, handlers are in place.
    unsafe { interrupts::restore(interrupts) };
}

/// Where a new task begins; its program's start lies at `start`.
extern "C" fn first_steps(start: u64) -> ! {
    resume(Interrupts::Disabled);
    machine::leave_to_user();
    // SAFETY: the program's start lies above its stack, which is aligned as behind a call.
    unsafe { enter_user(user::main as *const () as u64, start - 8, start) }
}

/// The idle thread of a CPU, on the stack that it started on. Returns when no task is left.
pub(crate) fn idle() {
    let here = cpu::index() as usize;
    while is_anybody_left() {
        let mut held = hold();
        match scheduling::pick(&mut *held.sched, here) {
            Some(index) => run(held, here, index),
            None => {
                held.sched.idle |= 1 << here;
                drop(held.sched);
                if command_line::get().naps {
                    machine::nap();
                }
                // SAFETY: handlers are in place; a kick that came since the lock was given back is still pending.
                unsafe { interrupts::enable_and_halt() };
                // SAFETY: ring 0.
                unsafe { interrupts::disable() };
            }
        }
    }
}

fn run(mut held: Held, here: usize, index: TaskIndex) {
    let sched = &mut *held.sched;
    sched.idle &= !(1 << here);
    let save = &raw mut sched.idle_stacks[here];
    let load = sched.load(here, Running::Task(index));
    jump(held, save, load);
    resume(Interrupts::Disabled);
}
