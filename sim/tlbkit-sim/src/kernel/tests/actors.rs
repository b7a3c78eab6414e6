//! Tasks whose code is that of a test: they run from the first cycle on, where they are put, until they are done.

use std::cell::RefCell;
use std::rc::Rc;

use tlbkit_workloads::calls::TaskRandom;

use super::super::sched::Fate;
use super::super::task::{Affinity, Process, Task};
use super::super::{Kernel, TaskIndex};
use crate::multiprocessor::Fiber;

/// Whether a task may leave the CPU where it is put.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Pinned,
    /// On both threads of a core.
    OnCore,
    Free,
}

/// Puts a thread of `process` onto `cpu`; its code is `act`.
pub(super) fn put(
    kernel: &'static Kernel,
    process: &'static Process,
    (cpu, kept): (usize, Kept),
    act: impl FnOnce(TaskIndex) + 'static,
) -> TaskIndex {
    let index = kernel.tasks.next_index();
    let body = move || {
        kernel.machine().enable_interrupts();
        act(index);
        kernel.note_task_end();
        if !kernel.is_done() {
            kernel.switch_away(index, Fate::End);
        }
    };
    let task = Task::new(process, cpu, TaskRandom::new(1, u64::from(index)), Fiber::new(body).unwrap());
    task.affinity.set(match kept {
        Kept::Free => Affinity::All,
        Kept::Pinned => Affinity::Cpu(cpu),
        Kept::OnCore => Affinity::Core(cpu),
    });
    kernel.add_task(task);
    process.threads.set(process.threads.get() + 1);
    kernel.queues.push(cpu, index, &kernel.tasks);
    kernel.queues.clear_idle(cpu);
    kernel.machine().schedule(cpu, 0);
    index
}

/// What happened, and when.
#[derive(Clone, Default)]
pub(super) struct Diary(Rc<RefCell<Vec<(&'static str, u64)>>>);

impl Diary {
    /// `what` happens now.
    pub(super) fn note(&self, kernel: &'static Kernel, what: &'static str) {
        self.0.borrow_mut().push((what, kernel.machine().running().now()));
    }

    /// What happened, in the order of its notes.
    pub(super) fn what(&self) -> Vec<&'static str> {
        self.0.borrow().iter().map(|(what, _)| *what).collect()
    }

    /// When `what` happened.
    pub(super) fn when(&self, what: &str) -> u64 {
        self.0.borrow().iter().find(|(noted, _)| *noted == what).expect("it has happened").1
    }
}
