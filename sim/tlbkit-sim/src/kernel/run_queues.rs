//! A run queue per CPU, and which CPUs have nothing to run or something to give away.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tlbkit_workloads::scheduling::{self, RunQueues};

use super::TaskIndex;
use super::cpu_bits::CpuBits;
use super::task::{Affinity, Task, Tasks};
use crate::host::prefetch;
use crate::multiprocessor::NEVER;
use crate::topology::Topology;

/// How many idle CPUs are looked at in the search for one whose core idles as a whole.
const CORES_LOOKED_AT: usize = 8;

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Running {
    /// Its idle thread.
    Idle,
    /// A task.
    Task(TaskIndex),
}

/// The scheduler's part of a CPU: one line of the host.
#[repr(align(64))]
struct CpuQueue {
    running: Cell<Running>,
    waiting: RefCell<VecDeque<TaskIndex>>,
    /// How many tasks wait here that are not pinned.
    loose: Cell<u32>,
    slice_end: Cell<u64>,
}

const _: () = assert!(size_of::<CpuQueue>() == 64);

/// The queues of all CPUs.
pub(super) struct Queues {
    cpus: Box<[CpuQueue]>,
    /// CPUs whose idle thread found nothing to run, and that have been given nothing since.
    idle: CpuBits,
    /// CPUs whose queues hold a task that is not pinned.
    loose: CpuBits,
}

impl Queues {
    pub(super) fn new(cpus: usize) -> Self {
        let queue = || CpuQueue {
            running: Cell::new(Running::Idle),
            waiting: RefCell::default(),
            loose: Cell::new(0),
            slice_end: Cell::new(NEVER),
        };
        Self { cpus: (0..cpus).map(|_| queue()).collect(), idle: CpuBits::new(cpus), loose: CpuBits::new(cpus) }
    }

    /// What the CPU does.
    pub(super) fn running(&self, cpu: usize) -> Running {
        self.cpus[cpu].running.get()
    }

    /// Makes the CPU run `next` from now on; if other tasks wait, until `slice_end`.
    pub(super) fn run(&self, cpu: usize, next: Running, slice_end: u64) {
        self.cpus[cpu].running.set(next);
        self.cpus[cpu].slice_end.set(slice_end);
    }

    /// When the task on `cpu` must make room for another, if another waits.
    pub(super) fn preempt_at(&self, cpu: usize) -> u64 {
        if self.is_empty(cpu) { NEVER } else { self.cpus[cpu].slice_end.get() }
    }

    /// True if no task waits for the CPU.
    pub(super) fn is_empty(&self, cpu: usize) -> bool {
        self.cpus[cpu].waiting.borrow().is_empty()
    }

    /// True if tasks wait for `cpu` and all of them are pinned. Then no other CPU can take one, but for the other
    /// thread of its core, which may take a second task that is kept on that core.
    pub(super) fn only_pinned_wait(&self, cpu: usize) -> bool {
        self.cpus[cpu].loose.get() == 0 && !self.is_empty(cpu)
    }

    /// Puts a task at the end of a queue.
    pub(super) fn push(&self, cpu: usize, index: TaskIndex, tasks: &Tasks) {
        self.cpus[cpu].waiting.borrow_mut().push_back(index);
        if !tasks.get(index).is_pinned() {
            let loose = &self.cpus[cpu].loose;
            loose.set(loose.get() + 1);
            self.loose.insert(cpu);
        }
    }

    /// The CPU found nothing to run.
    pub(super) fn set_idle(&self, cpu: usize) {
        self.idle.insert(cpu);
    }

    /// The CPU has something to run; true if it had nothing before.
    pub(super) fn clear_idle(&self, cpu: usize) -> bool {
        let was_idle = self.idle.contains(cpu);
        self.idle.remove(cpu);
        was_idle
    }

    /// Fetches what the scheduler knows of the CPU into the host's caches.
    pub(super) fn prefetch(&self, cpu: usize) {
        prefetch(&self.cpus[cpu]);
    }

    /// The idle CPU for a woken task that ran on `cpu` last: that CPU if it idles. Otherwise a CPU whose core idles as
    /// a whole comes before one whose sibling is busy, as in Linux (`select_idle_core` in its kernel/sched/fair.c).
    fn idle_for_woken(&self, cpu: usize, topology: &Topology) -> Option<usize> {
        let first = self.idle.from(cpu)?;
        if first == cpu { Some(cpu) } else { self.idle_core_from(cpu, topology).or(Some(first)) }
    }

    /// An idle core of the socket of `cpu`, if the task that `cpu` runs shares its own.
    fn emptier_core(&self, cpu: usize, topology: &Topology) -> Option<usize> {
        if self.has_idle_sibling(cpu, topology) {
            return None;
        }
        let mut socket = topology.socket_of(cpu).take_while(|&other| other < self.cpus.len());
        socket.find(|&other| self.idle.contains(other) && self.has_idle_sibling(other, topology))
    }

    /// Where a balancer that looks from `start` on may move the task that `cpu` runs: to an idle core. A task that
    /// shares its core may also move to an idle CPU of a shared core. One that has its core alone would run slower
    /// there.
    fn idle_for_moved(&self, cpu: usize, start: usize, topology: &Topology) -> Option<usize> {
        let shares_its_core = !self.has_idle_sibling(cpu, topology);
        let any = || shares_its_core.then(|| self.idle.from(start)).flatten();
        self.idle_core_from(start, topology).or_else(any)
    }

    /// The first CPU from `start` on, of the first few that idle, whose core idles as a whole.
    fn idle_core_from(&self, start: usize, topology: &Topology) -> Option<usize> {
        let next = |&cpu: &usize| self.idle.from((cpu + 1) % self.cpus.len());
        let idle = std::iter::successors(self.idle.from(start), next);
        idle.take(CORES_LOOKED_AT).find(|&cpu| self.has_idle_sibling(cpu, topology))
    }

    /// Whether no other thread of the core of `cpu` is busy.
    fn has_idle_sibling(&self, cpu: usize, topology: &Topology) -> bool {
        topology.sibling(cpu).is_none_or(|sibling| self.idle.contains(sibling))
    }
}

/// The queues as the scheduling rules see them, with the tasks that are in them.
#[derive(Clone, Copy)]
pub(super) struct WithTasks<'k> {
    pub(super) queues: &'k Queues,
    pub(super) tasks: &'k Tasks,
    pub(super) topology: &'k Topology,
}

impl WithTasks<'_> {
    /// An idle core of the socket of `cpu`, if the task that `cpu` runs shares its own.
    pub(super) fn emptier_core(&self, cpu: usize) -> Option<usize> {
        self.queues.emptier_core(cpu, self.topology)
    }

    /// Where a balancer that looks from `start` on may move the task that `cpu` runs.
    pub(super) fn idle_for_moved(&self, cpu: usize, start: usize) -> Option<usize> {
        self.queues.idle_for_moved(cpu, start, self.topology)
    }

    /// Where a task goes that becomes runnable.
    pub(super) fn place(&self, task: &Task) -> usize {
        let last = task.cpu.get();
        let by_affinity = || match task.affinity.get() {
            Affinity::All => None,
            Affinity::Cpu(cpu) => Some(cpu),
            Affinity::Core(first) => Some(self.freer_of_core(first, last)),
        };
        scheduling::place(self, last, task.on_cpu.get().or_else(by_affinity))
    }

    /// The CPU of the core of `first` for a task that ran on `last`: that one if it idles, else the other one if that
    /// idles, else the one for which fewer wait. For a task that comes from another core `first` stands for `last`.
    fn freer_of_core(&self, first: usize, last: usize) -> usize {
        let Some(second) = self.topology.sibling(first) else { return first };
        let cpus = if last == second { [second, first] } else { [first, second] };
        let idle = cpus.into_iter().find(|&cpu| self.queues.idle.contains(cpu));
        idle.or_else(|| cpus.into_iter().min_by_key(|&cpu| self.waiting(cpu))).unwrap_or(first)
    }

    /// Takes the first task that waits for the other thread of the core of `cpu` and may run on both, as Linux does
    /// before a CPU goes idle (`sched_balance_newidle` in its kernel/sched/fair.c). A task that the other thread is
    /// about to run is left there.
    pub(super) fn take_of_core(&mut self, cpu: usize) -> Option<TaskIndex> {
        let sibling = self.topology.sibling(cpu)?;
        if self.waiting(sibling) < 2 && self.runs_idle_thread(sibling) {
            return None;
        }
        let mut waiting = self.queues.cpus[sibling].waiting.borrow_mut();
        let at = waiting.iter().position(|&index| self.tasks.get(index).may_change_thread())?;
        waiting.remove(at)
    }

    /// A task was taken out of the queue of `cpu`.
    fn note_taken(self, cpu: usize, index: TaskIndex) {
        if !self.tasks.get(index).is_pinned() {
            let loose = &self.queues.cpus[cpu].loose;
            loose.set(loose.get() - 1);
            if loose.get() == 0 {
                self.queues.loose.remove(cpu);
            }
        }
    }
}

impl RunQueues for WithTasks<'_> {
    type Task = TaskIndex;

    fn cpus(&self) -> usize {
        self.queues.cpus.len()
    }

    fn idle_from(&self, cpu: usize) -> Option<usize> {
        self.queues.idle_for_woken(cpu, self.topology)
    }

    fn waiting(&self, cpu: usize) -> usize {
        self.queues.cpus[cpu].waiting.borrow().len()
    }

    fn runs_idle_thread(&self, cpu: usize) -> bool {
        self.queues.running(cpu) == Running::Idle
    }

    /// Only CPUs whose queues hold a task that is not pinned. With thousands of CPUs, a run that looked at all of them
    /// would do little else.
    fn movable_from(&self, cpu: usize) -> Option<usize> {
        self.queues.loose.from(cpu)
    }

    fn take_first(&mut self, cpu: usize) -> Option<TaskIndex> {
        let index = self.queues.cpus[cpu].waiting.borrow_mut().pop_front()?;
        self.note_taken(cpu, index);
        Some(index)
    }

    fn take_movable(&mut self, cpu: usize) -> Option<TaskIndex> {
        let mut waiting = self.queues.cpus[cpu].waiting.borrow_mut();
        let at = waiting.iter().position(|&index| self.tasks.get(index).may_move())?;
        let index = waiting.remove(at)?;
        self.note_taken(cpu, index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::Queues;
    use crate::topology::Topology;
    use tlbkit_machine::Machine;

    /// Four cores of two threads, CPUs 0 and 4 the first, with these busy.
    fn with_busy(busy: &[usize]) -> (Queues, Topology) {
        let system = Machine::builtin("ivybridge-8thread").unwrap().system;
        let (queues, topology) = (Queues::new(8), Topology::new(&system, 8));
        assert_eq!(topology.sibling(1), Some(5));
        (0..8).filter(|cpu| !busy.contains(cpu)).for_each(|cpu| queues.set_idle(cpu));
        (queues, topology)
    }

    #[test]
    fn a_woken_task_goes_where_it_ran_then_to_an_idle_core_then_to_any_idle_cpu() {
        let (queues, topology) = with_busy(&[0, 1, 2]);
        assert_eq!(queues.idle_for_woken(4, &topology), Some(4), "it ran there, and its lines may be there still");
        assert_eq!(queues.idle_for_woken(0, &topology), Some(3), "the core of CPU 3 idles");
        let (queues, topology) = with_busy(&[0, 1, 2, 3]);
        assert_eq!(queues.idle_for_woken(1, &topology), Some(4), "no core idles");
    }

    #[test]
    fn a_balancer_moves_no_task_that_has_its_core_alone_to_where_it_would_share_one() {
        let (queues, topology) = with_busy(&[0, 4, 1, 5, 2]);
        for cpu in [0, 4, 2] {
            assert_eq!(queues.idle_for_moved(cpu, 6, &topology), Some(7), "the core of CPU 7 idles");
        }
        let (queues, topology) = with_busy(&[0, 4, 1, 2, 3]);
        assert_eq!(queues.idle_for_moved(1, 6, &topology), None, "it has its core alone");
        assert_eq!(queues.idle_for_moved(4, 6, &topology), Some(6), "it shares its core, here or there");
    }

    #[test]
    fn an_emptier_core_is_one_of_the_socket_that_idles_while_two_share_another() {
        let (queues, topology) = with_busy(&[0, 4, 1, 5, 2]);
        assert_eq!([0, 4, 1, 5].map(|cpu| queues.emptier_core(cpu, &topology)), [Some(3); 4]);
        assert_eq!(queues.emptier_core(2, &topology), None, "it has its core alone");
        let (queues, topology) = with_busy(&[0, 4, 1, 2, 3]);
        assert_eq!(queues.emptier_core(0, &topology), None, "no core idles");
    }
}
