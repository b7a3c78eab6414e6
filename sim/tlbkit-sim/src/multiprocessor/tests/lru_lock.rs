//! The lock of the lists of pages: whom it keeps waiting, and what is charged for it.

use super::super::Multiprocessor;
use super::{Part, play, play_on};
use crate::code::{Code, LruWork};
use crate::observer::Cause;

/// Work under the lock: it takes far longer than the lines that move with it.
const HELD: LruWork = LruWork { instructions: 20_000, locked: 0 };
/// Work that follows under the same hold.
const MORE: LruWork = LruWork { instructions: 10_000, locked: 100 };
/// The lock, the head of a list, the page next to it, counters.
const LINES: u64 = 4;
/// When the second CPU comes: the first has the lock by then, and still has it.
const COMES_AT: u64 = 5_000;

/// What the lines of the lock cost a CPU that does not hold them: the lock is taken by a locked operation, and of what
/// it guards each line is read and then written.
fn fetched(machine: &Multiprocessor) -> u64 {
    let lines = &machine.costs.lines;
    LINES * lines.same_socket_cycles + lines.locked_cycles + (LINES - 1) * lines.local_cycles
}

fn cycles(machine: &Multiprocessor, work: LruWork) -> u64 {
    machine.costs.instructions(work.instructions) + work.locked * machine.costs.lines.locked_cycles
}

/// When who waits since `COMES_AT` sees that the lock was let go of at `free_at`: it looks once in each pause.
fn seen(machine: &Multiprocessor, free_at: u64) -> u64 {
    COMES_AT + (free_at - COMES_AT).next_multiple_of(machine.costs.pause) + machine.costs.lines.same_socket_cycles
}

/// Takes the lock at the beginning, and notes when it lets go of it.
const HOLDS: Part = |machine, shared| {
    machine.change_lru_lists(HELD);
    shared.note.set(machine.running().now() + cycles(machine, HELD));
    assert!(machine.running().now() < COMES_AT && COMES_AT < shared.note.get());
};

#[test]
fn who_takes_the_lock_of_the_lists_pays_for_its_lines_and_not_for_what_it_executes() {
    play([
        |machine, _| {
            machine.change_lru_lists(HELD);
            assert_eq!(machine.running().now(), fetched(machine));
            assert_eq!(machine.tally().accesses(), 2 * LINES - 1);
            machine.go_on_with_lru_lists(MORE);
            machine.change_lru_lists(HELD);
            let ledger = machine.running().ledger();
            assert_eq!(machine.running().now(), fetched(machine), "it has the lines, and does not wait for itself");
            assert_eq!((ledger.line_cycles(), ledger.of(Cause::LockSpin)), (fetched(machine), 0));
        },
        |_, _| (),
    ]);
}

#[test]
fn another_cpu_waits_until_the_lock_is_free_and_fetches_its_lines() {
    play([HOLDS, |machine, shared| {
        machine.sleep_until(COMES_AT, Cause::Idle);
        machine.change_lru_lists(HELD);
        let seen = seen(machine, shared.note.get());
        assert_eq!(machine.running().now(), seen + fetched(machine));
        assert_eq!(machine.running().ledger().of(Cause::LockSpin), seen - COMES_AT);
    }]);
}

#[test]
fn who_goes_on_with_the_lists_keeps_others_waiting_for_longer() {
    play([
        |machine, shared| {
            HOLDS(machine, shared);
            let before = machine.running().now();
            machine.go_on_with_lru_lists(MORE);
            assert_eq!(machine.running().now(), before, "it is a part of what the call costs");
            shared.note.set(shared.note.get() + cycles(machine, MORE));
        },
        |machine, shared| {
            machine.sleep_until(COMES_AT, Cause::Idle);
            machine.change_lru_lists(HELD);
            let waited = seen(machine, shared.note.get()) - COMES_AT;
            assert_eq!(machine.running().ledger().of(Cause::LockSpin), waited);
        },
    ]);
}

#[test]
fn the_lock_is_let_go_of_when_what_was_written_under_it_is_seen() {
    play([
        |machine, _| {
            machine.change_lru_lists(LruWork { instructions: 0, locked: 0 });
            let (now, seen_at) = (machine.running().now(), machine.running().drained_at.get());
            assert!(seen_at > now, "who writes does not wait for its stores");
            assert_eq!(machine.lru_locks.others_until(0, 1, now), Some(seen_at));
        },
        |_, _| (),
    ]);
}

#[test]
fn a_lock_that_is_free_again_keeps_nobody_waiting() {
    play([HOLDS, |machine, shared| {
        machine.sleep_until(COMES_AT, Cause::Idle);
        machine.sleep_until(shared.note.get(), Cause::Idle);
        machine.change_lru_lists(HELD);
        assert_eq!(machine.running().now(), shared.note.get() + fetched(machine));
        assert_eq!(machine.running().ledger().of(Cause::LockSpin), 0);
    }]);
}

#[test]
fn each_socket_has_lists_of_its_own() {
    play_on(
        "server-2018-48cpu",
        Code::TLBKIT,
        [HOLDS, |machine, _| {
            machine.sleep_until(COMES_AT, Cause::Idle);
            machine.change_lru_lists(HELD);
            assert_eq!(machine.running().now(), COMES_AT + fetched(machine), "separate lines, from memory");
            assert_eq!(machine.line_counters().cross_socket, 0);
        }],
    );
}
