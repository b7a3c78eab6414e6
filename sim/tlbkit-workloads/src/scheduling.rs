//! The scheduling rules by which every kernel runs a workload: where a woken task goes, and what a CPU without work
//! takes from others.
//!
//! A kernel keeps its queues as it likes and answers the questions of [`RunQueues`]. The rules change nothing but what
//! they take out of a queue, and promise nothing about time: a kernel that runs CPUs in parallel must hold a lock over
//! each call.

/// Neighbours whose queues are compared when no CPU is idle. To look at all would make a wake-up cost more with every
/// CPU of the machine.
const NEIGHBOURS: usize = 8;

/// What the rules ask a kernel about its run queues. CPUs are numbered from 0.
pub trait RunQueues {
    /// A task, as the kernel names it.
    type Task;

    /// How many CPUs there are.
    fn cpus(&self) -> usize;

    /// The first CPU from `cpu` upwards, and round the end, that has told the kernel that it found nothing to run.
    fn idle_from(&self, cpu: usize) -> Option<usize>;

    /// How many tasks wait in the queue of `cpu`.
    fn waiting(&self, cpu: usize) -> usize;

    /// Whether `cpu` is running its idle thread, even if it has just been told that a task waits for it.
    fn runs_idle_thread(&self, cpu: usize) -> bool;

    /// The first CPU from `cpu` upwards, and round the end, whose queue may hold a task that may leave it. A kernel
    /// that keeps no such set is asked queue by queue.
    fn movable_from(&self, cpu: usize) -> Option<usize> {
        Some(cpu)
    }

    /// Takes the task that has waited longest out of the queue of `cpu`.
    fn take_first(&mut self, cpu: usize) -> Option<Self::Task>;

    /// Takes the task that has waited longest out of the queue of `cpu`, of those that another CPU may run: a task that
    /// is pinned may not leave, nor one whose stack a CPU still uses.
    fn take_movable(&mut self, cpu: usize) -> Option<Self::Task>;
}

/// The CPU for a task that becomes runnable: the one that it is `bound` to, else where it ran `last` if that CPU is
/// idle, else the next idle CPU, else the shortest queue near.
pub fn place(queues: &impl RunQueues, last: usize, bound: Option<usize>) -> usize {
    if let Some(cpu) = bound.or_else(|| queues.idle_from(last)) {
        return cpu;
    }
    let cpus = queues.cpus();
    let near = (0..NEIGHBOURS.min(cpus)).map(|step| (last + step) % cpus);
    near.min_by_key(|&cpu| queues.waiting(cpu)).unwrap_or(last)
}

/// Takes the task that `cpu` runs next: the first of its own queue, else one that may leave the queue of another CPU.
/// The lone task of a CPU that is about to run it stays there.
pub fn pick<Q: RunQueues>(queues: &mut Q, cpu: usize) -> Option<Q::Task> {
    let own = queues.take_first(cpu);
    if own.is_some() {
        return own;
    }
    let cpus = queues.cpus();
    let mut step = 1;
    while step < cpus {
        let start = (cpu + step) % cpus;
        let victim = queues.movable_from(start)?;
        step += (victim + cpus - start) % cpus;
        if step >= cpus {
            return None;
        }
        let is_about_to_run_it = queues.waiting(victim) < 2 && queues.runs_idle_thread(victim);
        if !is_about_to_run_it && let Some(task) = queues.take_movable(victim) {
            return Some(task);
        }
        step += 1;
    }
    None
}
