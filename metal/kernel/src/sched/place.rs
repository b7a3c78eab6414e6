//! What this kernel answers to the scheduling rules, which it shares with the simulated kernel.

use tlbkit_workloads::scheduling::{self, RunQueues};

use super::state::{Running, Sched};
use super::task::{TaskIndex, TaskState};
use crate::arch::{apic, cpu};
use crate::command_line;
use crate::counters::{self, Counter};

impl Sched {
    /// Puts a task into a queue and wakes the CPU.
    pub(super) fn make_runnable(&mut self, index: TaskIndex) {
        let to = scheduling::place(self, self.tasks[index].cpu, self.tasks[index].pinned);
        self.tasks[index].state = TaskState::Queued;
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

impl RunQueues for Sched {
    type Task = TaskIndex;

    fn cpus(&self) -> usize {
        command_line::get().cpus as usize
    }

    fn idle_from(&self, cpu: usize) -> Option<usize> {
        let above = self.idle >> cpu << cpu;
        let first = if above != 0 { above } else { self.idle };
        (first != 0).then(|| first.trailing_zeros() as usize)
    }

    fn waiting(&self, cpu: usize) -> usize {
        self.queues[cpu].len()
    }

    fn runs_idle_thread(&self, cpu: usize) -> bool {
        self.running[cpu] == Running::Idle
    }

    fn take_first(&mut self, cpu: usize) -> Option<TaskIndex> {
        self.queues[cpu].pop(&mut self.tasks)
    }

    fn take_movable(&mut self, cpu: usize) -> Option<TaskIndex> {
        self.queues[cpu].take(&mut self.tasks, |task| task.pinned.is_none())
    }
}
