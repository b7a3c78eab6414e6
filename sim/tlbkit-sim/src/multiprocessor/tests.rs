//! A CPU runs ahead of the others only as far as nothing that they do can matter to it.

use std::cell::Cell;
use std::rc::Rc;

use tlbkit::sync::{AtomicU64, Observer as AtomicsObserver, Ordering, set_observer};
use tlbkit::{CpuState, PhysAddr, Policy, Tlb};

use super::agenda::NEVER;
use super::interrupts::Vector;
use super::system::FlushHandler;
use super::{Defect, Fiber, Multiprocessor, observe};
use crate::keep::{Keep, KeptWords};
use crate::lines::SETTLED_CYCLES;
use crate::machine::Machine;
use crate::observer::{Cause, Observer};

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
    fn look_until(&self, machine: &'static Multiprocessor, seen: impl Fn(u64) -> bool) -> u64 {
        loop {
            let value = self.word.0.load(ORDER);
            let now = machine.running().now();
            if seen(value) || now > GIVEN_UP_AT {
                return now;
            }
        }
    }
}

/// What one CPU does.
type Part = fn(&'static Multiprocessor, &Shared);

/// CPU 0 and CPU 1 of a machine without a kernel each do their part from the first cycle on; returns the note.
fn play(parts: [Part; 2]) -> u64 {
    let states = Keep::new([const { CpuState::new() }; 2].into_iter().collect::<Box<[_]>>());
    let words = KeptWords::zeroed(Tlb::matrix_words(2));
    let policy = Policy::preset("linux-6.18").expect("a preset");
    let tlb = Tlb::new(states.get(), words.get(), PhysAddr(1 << 40), policy);
    let model = Machine::builtin("ivybridge-8thread").expect("a built-in machine");
    let nobody_flushes: FlushHandler = |_, _, _| unreachable!("no CPU sends a flush interrupt");
    let machine = Multiprocessor::new(&model, 2, tlb, nobody_flushes, Observer::new(2, None), Defect::None);
    let kept = Keep::new(Box::new(machine));
    let (machine, shared) = (kept.get(), Rc::new(Shared::default()));
    let mut cpus = [0, 1].map(|cpu| {
        let (part, shared) = (parts[cpu], Rc::clone(&shared));
        machine.schedule(cpu, 0);
        let body = move || {
            part(machine, &shared);
            machine.sleep_until(NEVER, Cause::Idle);
        };
        Fiber::new(body).unwrap()
    });
    let before = set_observer(AtomicsObserver { before: observe, ..AtomicsObserver::NOBODY });
    Multiprocessor::install(Some(machine));
    while let Some(turn) = machine.next() {
        cpus[turn.cpu].resume();
    }
    machine.stop();
    Multiprocessor::install(None);
    set_observer(before);
    shared.note.get()
}

/// So much later than it was written a value may be seen: the line goes to the writer and comes back, and the reader
/// was at most one transfer ahead.
fn transfers(machine: &Multiprocessor) -> u64 {
    3 * machine.costs.lines.same_socket_cycles
}

#[test]
fn a_line_that_moved_lately_is_not_looked_at_ahead_of_its_writer() {
    /// The reader fetches the line at 0; this is just before it would count as settled.
    const WRITTEN_AT: u64 = SETTLED_CYCLES - 2_000;
    let late = play([
        |machine, shared| {
            machine.running().disable_interrupts();
            let seen_at = shared.look_until(machine, |value| value == 1);
            shared.note.set((seen_at - WRITTEN_AT).saturating_sub(transfers(machine)));
        },
        |machine, shared| {
            machine.sleep_until(WRITTEN_AT, Cause::Idle);
            shared.word.0.store(1, ORDER);
        },
    ]);
    assert_eq!(late, 0, "cycles too late");
}

#[test]
fn an_interrupt_is_taken_between_repeated_loads() {
    let late = play([
        |machine, shared| {
            let is_taken = || shared.note.get() != 0 && machine.running().kick_due.get() == NEVER;
            let taken_at = shared.look_until(machine, |_| is_taken());
            let due = shared.note.get();
            shared.note.set(taken_at - due - machine.costs.interrupt);
        },
        |machine, shared| {
            machine.sleep_until(10_000, Cause::Idle);
            machine.deliver(0, Vector::Kick);
            shared.note.set(machine.processors[0].kick_due.get());
        },
    ]);
    assert!(late < 8, "{late} cycles late: more than the loads before and after it");
}

#[test]
fn whoever_is_woken_by_a_cpu_bounds_how_far_that_one_repeats_a_load() {
    let late = play([
        |machine, shared| {
            shared.look_until(machine, |_| machine.running().now() > 10_000);
            let woken_at = machine.running().now();
            machine.wake(1, woken_at);
            let seen_at = shared.look_until(machine, |value| value == 1);
            shared.note.set((seen_at - woken_at).saturating_sub(transfers(machine)));
        },
        |machine, shared| {
            machine.sleep_until(NEVER, Cause::Idle);
            shared.word.0.store(1, ORDER);
        },
    ]);
    assert_eq!(late, 0, "cycles too late");
}

#[test]
fn repeated_loads_are_charged_to_the_account_that_each_was_on() {
    play([
        |machine, shared| {
            let cpu = machine.running();
            let load_thrice = || (0..3).for_each(|_| assert_eq!(shared.word.0.load(ORDER), 0));
            cpu.within(Cause::FlushSend, load_thrice);
            cpu.within(Cause::FlushLocal, load_thrice);
            machine.end_streak();
            let (ledger, costs) = (cpu.ledger(), machine.costs.lines);
            let spent = [Cause::FlushSend, Cause::FlushLocal].map(|cause| ledger.of(cause));
            let fetched = costs.same_socket_cycles;
            assert_eq!(spent, [fetched + 2 * costs.local_cycles, 3 * costs.local_cycles]);
            assert_eq!((spent[0] + spent[1], 5), (cpu.now(), machine.line_counters().hits));
        },
        |_, _| (),
    ]);
}
