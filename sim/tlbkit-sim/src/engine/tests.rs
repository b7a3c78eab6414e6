//! A CPU runs ahead of the others only as far as nothing that they do can matter to it.

use std::cell::Cell;
use std::rc::Rc;

use tlbkit::sync::{AtomicU64, Ordering};

use super::core::{Irqs, NEVER};
use super::fiber::Fiber;
use super::interrupt::Vector;
use super::ledger::Cause;
use super::world::World;
use crate::lines::SETTLED_CYCLES;
use crate::run::stage::rehearse;

/// Relaxed: the host has one thread, and simulated loads and stores take effect at once.
const ORDER: Ordering = Ordering::Relaxed;
/// A loop that sees nothing until then never will.
const GIVEN_UP_AT: u64 = 4 * SETTLED_CYCLES;

/// What the two CPUs of a test share.
#[derive(Default)]
struct Shared {
    word: Word,
    /// What a CPU wants to be known, at last to the test.
    note: Cell<u64>,
}

struct Word(AtomicU64);

impl Default for Word {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Shared {
    /// Loads the word again and again, so that most loads repeat the one before, until `seen` says that it is enough;
    /// returns when that was.
    fn look_until(&self, world: &'static World, seen: impl Fn(u64) -> bool) -> u64 {
        loop {
            let value = self.word.0.load(ORDER);
            let now = world.core().clock.get();
            if seen(value) || now > GIVEN_UP_AT {
                return now;
            }
        }
    }
}

/// What one CPU does.
type Part = fn(&'static World, &Shared);

/// CPU 0 and CPU 1 each do their part from the first cycle on; returns the note.
fn play(parts: [Part; 2]) -> u64 {
    let shared = Rc::new(Shared::default());
    rehearse(parts.len(), |stage, world| {
        for (cpu, part) in parts.into_iter().enumerate() {
            let shared = Rc::clone(&shared);
            let fiber = Fiber::new(move || {
                part(world, &shared);
                world.sleep_until(NEVER, Cause::Idle);
            });
            stage.idle_fibers.push(Some(fiber.unwrap()));
            world.schedule(cpu, 0);
        }
        stage.turn(world);
    });
    shared.note.get()
}

/// So much later than it was written a value may be seen: the line goes to the writer and comes back, and the reader
/// was at most one transfer ahead.
fn transfers(world: &World) -> u64 {
    3 * world.costs.lines.same_socket_cycles
}

#[test]
fn a_line_that_moved_lately_is_not_looked_at_ahead_of_its_writer() {
    /// The reader fetches the line at 0; this is just before it would count as settled.
    const WRITTEN_AT: u64 = SETTLED_CYCLES - 2_000;
    let late = play([
        |world, shared| {
            world.core().irqs.set(Irqs::Off);
            let seen_at = shared.look_until(world, |value| value == 1);
            shared.note.set((seen_at - WRITTEN_AT).saturating_sub(transfers(world)));
        },
        |world, shared| {
            world.sleep_until(WRITTEN_AT, Cause::Idle);
            shared.word.0.store(1, ORDER);
        },
    ]);
    assert_eq!(late, 0, "cycles too late");
}

#[test]
fn an_interrupt_is_taken_between_repeated_loads() {
    let late = play([
        |world, shared| {
            let is_taken = || shared.note.get() != 0 && world.core().kick_due.get() == NEVER;
            let taken_at = shared.look_until(world, |_| is_taken());
            let due = shared.note.get();
            shared.note.set(taken_at - due - world.costs.interrupt);
        },
        |world, shared| {
            world.sleep_until(10_000, Cause::Idle);
            world.deliver(0, Vector::Kick);
            shared.note.set(world.cores[0].kick_due.get());
        },
    ]);
    assert!(late < 8, "{late} cycles late: more than the loads before and after it");
}

#[test]
fn whoever_is_woken_by_a_cpu_bounds_how_far_that_one_repeats_a_load() {
    let late = play([
        |world, shared| {
            shared.look_until(world, |_| world.core().clock.get() > 10_000);
            let woken_at = world.core().clock.get();
            world.wake(1, woken_at);
            let seen_at = shared.look_until(world, |value| value == 1);
            shared.note.set((seen_at - woken_at).saturating_sub(transfers(world)));
        },
        |world, shared| {
            world.sleep_until(NEVER, Cause::Idle);
            shared.word.0.store(1, ORDER);
        },
    ]);
    assert_eq!(late, 0, "cycles too late");
}

#[test]
fn repeated_loads_are_charged_to_the_account_that_each_was_on() {
    play([
        |world, shared| {
            let core = world.core();
            let load_thrice = || (0..3).for_each(|_| assert_eq!(shared.word.0.load(ORDER), 0));
            core.within(Cause::FlushSend, load_thrice);
            core.within(Cause::FlushLocal, load_thrice);
            world.end_streak();
            let (ledger, costs) = (*core.ledger.borrow(), world.costs.lines);
            let spent = [Cause::FlushSend, Cause::FlushLocal].map(|cause| ledger.of(cause));
            let fetched = costs.same_socket_cycles;
            assert_eq!(spent, [fetched + 2 * costs.local_cycles, 3 * costs.local_cycles]);
            assert_eq!((spent[0] + spent[1], 5), (core.clock.get(), world.lines.borrow().counters().hits));
        },
        |_, _| (),
    ]);
}
