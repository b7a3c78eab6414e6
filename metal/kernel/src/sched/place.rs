//! On which CPU a task goes: where it ran last if that is idle, else an idle CPU near, else a short queue; and what a
//! CPU without work takes from the others.

use super::state::{Running, Sched};
use super::task::{State, TaskIndex};
use crate::arch::{apic, cpu};
use crate::command_line;
use crate::counters::{self, Counter};

/// Neighbours whose queues are compared when no CPU is idle.
const NEIGHBOURS: usize = 8;

impl Sched {
    /// Puts a task into a queue and tells the CPU.
    pub(super) fn make_runnable(&mut self, index: TaskIndex) {
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

    /// The CPU for a task that becomes runnable.
    pub(super) fn place(&self, index: TaskIndex) -> usize {
        let task = &self.tasks[index];
        if let Some(cpu) = task.pinned {
            return cpu;
        }
        let (last, cpus) = (task.cpu, command_line::get().cpus as usize);
        if let Some(idle) = self.idle_from(last) {
            return idle;
        }
        let near = (0..NEIGHBOURS.min(cpus)).map(|step| (last + step) % cpus);
        near.min_by_key(|&cpu| self.queues[cpu].len()).unwrap_or(last)
    }

    /// The first idle CPU from `cpu` upwards, around the end.
    fn idle_from(&self, cpu: usize) -> Option<usize> {
        let above = self.idle >> cpu << cpu;
        let first = if above != 0 { above } else { self.idle };
        (first != 0).then(|| first.trailing_zeros() as usize)
    }

    /// The next task of the CPU's queue, or one of another's.
    pub(super) fn pick(&mut self, cpu: usize) -> Running {
        let own = self.queues[cpu].pop(&mut self.tasks);
        own.or_else(|| self.steal(cpu)).map_or(Running::Idle, Running::Task)
    }

    fn steal(&mut self, cpu: usize) -> Option<TaskIndex> {
        let cpus = command_line::get().cpus as usize;
        (1..cpus).map(|step| (cpu + step) % cpus).find_map(|victim| self.steal_from(victim))
    }

    fn steal_from(&mut self, victim: usize) -> Option<TaskIndex> {
        let queue = &mut self.queues[victim];
        // A lone task of a CPU that is about to run it stays.
        if queue.len() < 2 && self.running[victim] == Running::Idle {
            return None;
        }
        queue.take(&mut self.tasks, |task| task.pinned.is_none())
    }
}
