//! First in, first out, through links in the tasks: a task is in one queue at a time.

use super::task::{Task, TaskIndex};

/// A queue of tasks.
pub(super) struct Queue {
    first: Option<TaskIndex>,
    last: Option<TaskIndex>,
    len: usize,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { first: None, last: None, len: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, tasks: &mut [Task], index: TaskIndex) {
        tasks[index].next = None;
        match self.last.replace(index) {
            Some(before) => tasks[before].next = Some(index),
            None => self.first = Some(index),
        }
        self.len += 1;
    }

    pub(super) fn pop(&mut self, tasks: &mut [Task]) -> Option<TaskIndex> {
        let index = self.first?;
        self.remove_after(tasks, None, index);
        Some(index)
    }

    /// Takes out the first task that `suits`.
    pub(super) fn take(&mut self, tasks: &mut [Task], suits: impl Fn(&Task) -> bool) -> Option<TaskIndex> {
        let (mut before, mut at) = (None, self.first);
        while let Some(index) = at {
            if suits(&tasks[index]) {
                self.remove_after(tasks, before, index);
                return Some(index);
            }
            (before, at) = (at, tasks[index].next);
        }
        None
    }

    fn remove_after(&mut self, tasks: &mut [Task], before: Option<TaskIndex>, index: TaskIndex) {
        let next = tasks[index].next.take();
        match before {
            Some(before) => tasks[before].next = next,
            None => self.first = next,
        }
        if self.last == Some(index) {
            self.last = before;
        }
        self.len -= 1;
    }
}
