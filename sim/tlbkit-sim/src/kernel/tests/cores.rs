//! Which core a task runs on beside others: when it is woken, and when a balancer looks at it. There are four cores of
//! two threads each; CPUs 0 and 4 are one core.

use std::cell::Cell;
use std::rc::Rc;

use tlbkit_machine::Noise;

use super::super::{Kernel, TaskIndex};
use super::actors::{Kept, put};
use crate::run::Run;
use crate::run::stage::{rehearse, rehearse_with};

const CPUS: usize = 8;
const MILLISECOND_NS: u64 = 1_000_000;
/// How long a balancer waits, 3 ms for each CPU of the socket, and two ticks of 4 ms, of which one begins it.
const PARTED_AFTER_MS: std::ops::RangeInclusive<u64> = 24..=32;
const SEEDS: u64 = 12;

fn run_for_ms(kernel: &'static Kernel, me: TaskIndex, milliseconds: u64) {
    kernel.compute(me, kernel.machine().costs().cycles_of_ns(milliseconds * MILLISECOND_NS));
}

/// What became of two tasks that began on two CPUs and were busy.
struct Pair {
    /// After how many milliseconds the first of them had left its CPU, if one did.
    left_after_ms: Option<u64>,
    moves: u64,
}

fn pair(seed: u64, noise: Noise, cpus: [usize; 2], kept: Kept) -> Pair {
    let (left, moves) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(0)));
    rehearse_with(
        CPUS,
        |run| Run { seed, noise, ..run },
        |stage, kernel| {
            stage.boot(kernel).unwrap();
            let process = kernel.new_process();
            for cpu in cpus {
                let left = Rc::clone(&left);
                put(kernel, process, (cpu, kept), move |me| {
                    let ms =
                        || kernel.machine().running().now() / kernel.machine().costs().cycles_of_ns(MILLISECOND_NS);
                    while ms() <= *PARTED_AFTER_MS.end() {
                        kernel.compute(me, kernel.machine().costs().cycles_of_ns(MILLISECOND_NS / 10));
                        if left.get().is_none() && kernel.machine().cpu() != cpu {
                            left.set(Some(ms()));
                        }
                    }
                });
            }
            stage.turn(kernel, || kernel.is_done());
            moves.set(kernel.observer().kernel().moves);
        },
    );
    Pair { left_after_ms: left.get(), moves: moves.get() }
}

/// A balancer also moves tasks now and then, ten times a second: some pairs it parts sooner.
#[test]
fn two_tasks_of_one_core_are_parted_after_three_milliseconds_for_each_cpu_of_the_socket() {
    let pairs: Vec<_> = (1..=SEEDS).map(|seed| pair(seed, Noise::On, [0, 4], Kept::Free)).collect();
    assert!(pairs.iter().all(|pair| pair.left_after_ms.is_some() && pair.moves > 0), "all are parted at last");
    let late = pairs.iter().filter(|pair| pair.left_after_ms >= Some(*PARTED_AFTER_MS.start())).count();
    assert!(late as u64 > SEEDS / 3, "{late} of {SEEDS} as late as that");
}

#[test]
fn whom_nothing_parts_stays() {
    for seed in 1..=SEEDS {
        let pinned = pair(seed, Noise::On, [0, 4], Kept::Pinned);
        assert_eq!((pinned.left_after_ms, pinned.moves), (None, 0), "pinned");
        let quiet = pair(seed, Noise::Off, [0, 4], Kept::Free);
        assert_eq!((quiet.left_after_ms, quiet.moves), (None, 0), "without noise");
    }
    let pairs = (1..=SEEDS).map(|seed| pair(seed, Noise::On, [0, 1], Kept::Free));
    let stayed = pairs.filter(|pair| pair.left_after_ms.is_none()).count();
    assert!(stayed as u64 > SEEDS / 4, "{stayed} of {SEEDS} pairs of tasks that have a core each");
}

/// Where a task wakes that ran on CPU 4 before it slept, woken by one on the CPU `waker`, with others on these by then.
fn wakes_on(kept: Kept, waker: usize, busy: &'static [usize]) -> usize {
    let woken_on = Rc::new(Cell::new(None));
    rehearse(CPUS, |stage, kernel| {
        stage.boot(kernel).unwrap();
        let (process, found) = (kernel.new_process(), Rc::clone(&woken_on));
        let sleeper = put(kernel, process, (4, kept), move |me| {
            kernel.block(me);
            found.set(Some(kernel.machine().cpu()));
        });
        for &cpu in busy {
            put(kernel, process, (cpu, Kept::Free), move |me| run_for_ms(kernel, me, 2));
        }
        put(kernel, process, (waker, Kept::Free), move |me| {
            run_for_ms(kernel, me, 1);
            if busy.contains(&4) {
                assert_eq!(kernel.queues.running(4), super::super::run_queues::Running::Task(sleeper + 1));
            }
            kernel.make_runnable(sleeper);
            run_for_ms(kernel, me, 1);
        });
        stage.turn(kernel, || kernel.is_done());
    });
    woken_on.get().expect("it was woken")
}

#[test]
fn a_woken_task_goes_where_it_ran_and_else_rather_to_a_core_that_idles() {
    assert_eq!(wakes_on(Kept::Free, 0, &[]), 4, "it ran there, though the other thread of the core is busy");
    assert_eq!(wakes_on(Kept::Free, 0, &[4, 1]), 6, "CPU 5 idles, and CPU 1 beside it is busy");
    assert_eq!(wakes_on(Kept::Free, 0, &[4, 1, 2, 3]), 5, "no core idles");
}

#[test]
fn a_task_that_is_kept_on_a_core_wakes_on_the_thread_of_it_that_idles() {
    assert_eq!(wakes_on(Kept::OnCore, 1, &[]), 4, "it ran there");
    assert_eq!(wakes_on(Kept::OnCore, 1, &[4]), 0, "the other thread idles, and so do whole cores");
    assert_eq!(wakes_on(Kept::Pinned, 1, &[4]), 4);
}

/// Who runs a task that waits for CPU 4 when CPU 0, the other thread of that core, has nothing more to do. All other
/// cores idle all the time.
fn waits_and_runs_on(kept: Kept) -> usize {
    let ran_on = Rc::new(Cell::new(None));
    rehearse(CPUS, |stage, kernel| {
        stage.boot(kernel).unwrap();
        let (process, found) = (kernel.new_process(), Rc::clone(&ran_on));
        put(kernel, process, (4, Kept::Pinned), move |me| run_for_ms(kernel, me, 3));
        put(kernel, process, (0, Kept::Pinned), move |me| run_for_ms(kernel, me, 1));
        put(kernel, process, (4, kept), move |_| found.set(Some(kernel.machine().cpu())));
        stage.turn(kernel, || kernel.is_done());
    });
    ran_on.get().expect("it ran")
}

#[test]
fn a_cpu_takes_what_waits_for_the_other_thread_of_its_core_before_it_idles() {
    assert_eq!(waits_and_runs_on(Kept::OnCore), 0);
    assert_eq!(waits_and_runs_on(Kept::Pinned), 4);
}
