//! The scheduling rules on queues made by hand.

use tlbkit_workloads::scheduling::{RunQueues, pick, place};

/// Four CPUs. A task is its name and whether it is pinned.
#[derive(Default)]
struct Queues {
    waiting: [Vec<(char, Pinned)>; 4],
    idle: Vec<usize>,
    idle_threads: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Pinned {
    Yes,
    No,
}

impl RunQueues for Queues {
    type Task = char;

    fn cpus(&self) -> usize {
        self.waiting.len()
    }

    fn idle_from(&self, cpu: usize) -> Option<usize> {
        (0..4).map(|step| (cpu + step) % 4).find(|cpu| self.idle.contains(cpu))
    }

    fn waiting(&self, cpu: usize) -> usize {
        self.waiting[cpu].len()
    }

    fn runs_idle_thread(&self, cpu: usize) -> bool {
        self.idle_threads.contains(&cpu)
    }

    fn take_first(&mut self, cpu: usize) -> Option<char> {
        (!self.waiting[cpu].is_empty()).then(|| self.waiting[cpu].remove(0).0)
    }

    fn take_movable(&mut self, cpu: usize) -> Option<char> {
        let at = self.waiting[cpu].iter().position(|&(_, pinned)| pinned == Pinned::No)?;
        Some(self.waiting[cpu].remove(at).0)
    }
}

#[test]
fn a_task_goes_where_it_must_or_to_an_idle_cpu_or_to_a_short_queue() {
    let mut queues = Queues::default();
    queues.waiting[1].push(('a', Pinned::No));
    assert_eq!(place(&queues, 1, Some(3)), 3, "it is bound");
    assert_eq!(place(&queues, 1, None), 2, "the nearest empty queue");
    queues.idle = vec![0];
    assert_eq!(place(&queues, 1, None), 0, "round the end");
    queues.idle = vec![0, 1];
    assert_eq!(place(&queues, 1, None), 1, "where it ran last");
}

#[test]
fn a_cpu_takes_its_own_tasks_first_and_then_those_that_may_leave_others() {
    let mut queues = Queues::default();
    queues.waiting[1] = vec![('p', Pinned::Yes), ('a', Pinned::No)];
    queues.waiting[2] = vec![('b', Pinned::No)];
    queues.waiting[3] = vec![('c', Pinned::No)];
    queues.idle_threads = vec![0, 1, 3];
    let taken = std::iter::from_fn(|| pick(&mut queues, 0)).collect::<String>();
    assert_eq!(taken, "ab", "CPU 3 is about to run its only task, and the other one of CPU 1 is pinned");
    assert_eq!((pick(&mut queues, 3), pick(&mut queues, 1)), (Some('c'), Some('p')));
}
