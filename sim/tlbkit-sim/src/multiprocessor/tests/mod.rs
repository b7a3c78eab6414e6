//! A CPU runs ahead of the others only as far as nothing that they do can matter to it.

mod lru_lock;
mod prices;

use std::cell::Cell;
use std::rc::Rc;

use tlbkit::sync::{Access, AtomicU64, Observer as AtomicsObserver, Ordering, set_observer};
use tlbkit::{CpuId, CpuState, GracePeriods, Hardware, Part as Met, PhysAddr, Policy, Tlb};
use tlbkit_machine::{Machine, Noise};

use super::agenda::NEVER;
use super::system::FlushHandler;
use super::tally::Vector;
use super::{Defect, Fiber, MachineSettings, Multiprocessor, observe};
use crate::code::Code;
use crate::keep::{Keep, KeptWords};
use crate::lines::SETTLED_CYCLES;
use crate::observer::{Cause, Class};

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
    play_as(Code::TLBKIT, parts)
}

/// The same, charged as `code`.
fn play_as(code: Code, parts: [Part; 2]) -> u64 {
    play_on("ivybridge-8thread", code, parts)
}

/// The same on the first two CPUs of a built-in machine: of one socket, or of its two.
fn play_on(model: &str, code: Code, parts: [Part; 2]) -> u64 {
    play_to_the_end(model, code, |_| (), parts, |_, shared| shared.note.get())
}

/// The same on a machine that is changed before, and looked at when both have come to their end.
fn play_to_the_end<R>(
    model: &str,
    code: Code,
    change: impl FnOnce(&mut Multiprocessor),
    parts: [Part; 2],
    end: impl FnOnce(&Multiprocessor, &Shared) -> R,
) -> R {
    let states = Keep::new([const { CpuState::new() }; 2].into_iter().collect::<Box<[_]>>());
    let words = KeptWords::zeroed(Tlb::matrix_words(2));
    let policy = Policy::preset("linux-6.18").expect("a preset");
    let tlb = Tlb::new(states.get(), words.get(), PhysAddr(1 << 40), policy);
    let model = Machine::builtin(model).expect("a built-in machine");
    let does_nothing: FlushHandler = |_, _, _| ();
    let settings = MachineSettings {
        kernel_flushes: tlbkit::KernelFlushes::AtOnce,
        paravirtual_flush: super::ParavirtualFlush::Off,
        guests: 1,
        model: &model,
        cpus: 2,
        code,
        noise: Noise::Off,
        seed: 1,
        defect: Defect::None,
        sample_cycles: None,
    };
    let mut machine = Box::new(Multiprocessor::new(&settings, tlb, GracePeriods::new(&[]), does_nothing));
    change(&mut machine);
    let kept = Keep::new(machine);
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
    end(machine, &shared)
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
fn a_cpu_that_another_wakes_bounds_how_far_that_one_repeats_a_load() {
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

/// What a CPU has spent on one account.
fn spent(machine: &Multiprocessor, cpu: usize, cause: Cause) -> u64 {
    machine.processor(cpu).ledger().of(cause)
}

#[test]
fn an_interrupt_is_charged_once_to_its_sender_and_once_to_the_one_that_takes_it() {
    /// By then the receiver has halted.
    const SENT_AT: u64 = 100_000;
    play([
        |machine, _| {
            let sender = machine.running();
            machine.sleep_until(SENT_AT, Cause::Idle);
            sender.within(Cause::Kernel, || machine.send_kick(1));
            machine.with_cpu(0, |cpu| cpu.hardware().send_ipi(CpuId(1)));
            let costs = &machine.costs;
            assert_eq!(spent(machine, 0, Cause::Kernel), costs.ipi_send, "the wake-up");
            // The command of the wake-up is pending still.
            let wait = machine.observer().ipis().pending_cycles;
            assert!(wait > 0, "{wait}");
            assert_eq!(spent(machine, 0, Cause::FlushSend), wait + costs.ipi_send, "the request");
            assert_eq!(sender.now(), SENT_AT + wait + 2 * costs.ipi_send);
        },
        |machine, _| {
            machine.halt();
            let costs = &machine.costs;
            let arrived = SENT_AT + costs.ipi_send + costs.ipi_same_socket + costs.idle_wake;
            assert_eq!(machine.running().now(), arrived, "the wake-up comes first");
            machine.sync(NEVER);
            // The request arrives while the handler of the wake-up runs.
            assert_eq!(spent(machine, 1, Cause::Interrupt), 2 * costs.interrupt);
            let (ledger, ipis) = (machine.running().ledger(), machine.observer().ipis());
            assert_eq!(ledger.total(), machine.running().now());
            assert_eq!((ipis.sent, ipis.received, ipis.wakes_sent), (1, 1, 1));
        },
    ]);
}

#[test]
fn requests_that_come_together_are_one_interrupt_and_none_is_lost_count_of() {
    play([
        |machine, _| {
            machine.with_cpu(0, |cpu| (0..3).for_each(|_| cpu.hardware().send_ipi(CpuId(1))));
        },
        |machine, _| {
            machine.running().disable_interrupts();
            machine.sleep_until(1_000_000, Cause::Idle);
            machine.enable_interrupts();
            assert_eq!(spent(machine, 1, Cause::Interrupt), machine.costs.interrupt);
            let tally = machine.tally().flush_interrupts();
            assert_eq!((tally.sent, tally.merged, tally.taken), (3, 2, 1));
            assert_eq!((machine.observer().ipis().sent, machine.observer().ipis().received), (3, 1));
        },
    ]);
}

#[test]
fn a_request_and_a_wake_up_that_are_both_due_are_taken_one_after_the_other() {
    play([
        |machine, _| {
            machine.send_kick(1);
            machine.with_cpu(0, |cpu| cpu.hardware().send_ipi(CpuId(1)));
        },
        |machine, _| {
            machine.running().disable_interrupts();
            machine.sleep_until(1_000_000, Cause::Idle);
            machine.enable_interrupts();
            assert_eq!(spent(machine, 1, Cause::Interrupt), 2 * machine.costs.interrupt);
            let (flushes, kicks) = (machine.tally().flush_interrupts(), machine.tally().kicks());
            assert_eq!([flushes.taken, kicks.taken, flushes.merged, kicks.merged], [1, 1, 0, 0]);
        },
    ]);
}

#[test]
fn a_command_waits_until_the_one_before_was_accepted_and_no_longer() {
    play([
        |machine, _| {
            let (send, sender) = (machine.costs.ipi_send, machine.running());
            let model = Machine::builtin("ivybridge-8thread").expect("a built-in machine");
            let pending = model.apic.expect("its numbers").pending_cycles.cycles();
            machine.write_command(send);
            sender.advance(pending / 3);
            machine.write_command(send);
            assert_eq!(sender.now(), 2 * send + pending, "the rest of the time that it is pending");
            sender.advance(2 * pending);
            machine.write_command(send);
            assert_eq!(sender.now(), 3 * send + 3 * pending, "accepted long ago");
            let ipis = machine.observer().ipis();
            assert_eq!((ipis.commands, ipis.pending_cycles), (3, pending - pending / 3));
        },
        |_, _| (),
    ]);
}

#[test]
fn a_transfer_of_a_line_is_counted_and_charged_once() {
    play([
        |machine, shared| {
            shared.word.0.fetch_add(1, ORDER);
            let (costs, cpu) = (machine.costs.lines, machine.running());
            assert_eq!(cpu.now(), costs.same_socket_cycles + costs.locked_cycles, "from memory");
            shared.word.0.fetch_add(1, ORDER);
            machine.end_streak();
            let local = costs.local_cycles + costs.locked_cycles;
            assert_eq!(cpu.now(), costs.same_socket_cycles + costs.locked_cycles + local);
            assert_eq!((cpu.ledger().line_cycles(), machine.line_cycles()), (cpu.now(), cpu.now()));
            assert_eq!(machine.tally().accesses(), 2);
        },
        |machine, shared| {
            machine.sleep_until(1_000_000, Cause::Idle);
            shared.word.0.load(ORDER);
            shared.word.0.load(ORDER);
            machine.end_streak();
            let (costs, counters) = (machine.costs.lines, machine.line_counters());
            let spent = costs.same_socket_cycles + costs.local_cycles;
            assert_eq!(machine.running().now(), 1_000_000 + spent);
            assert_eq!((counters.same_socket, counters.cross_socket, counters.hits), (2, 0, 2));
            assert_eq!(machine.running().ledger().line_cycles(), spent);
        },
    ]);
}

/// An access of the running CPU to one of the protocol's parts, where another kernel's lines stand for it.
fn meet(machine: &'static Multiprocessor, access: Access, part: Met) {
    machine.access_part(machine.queues.as_ref().expect("Linux's way"), access, part);
}

/// What the protocol does for a flush that CPU 0 asks of CPU 1, from the hint to the end of the wait. CPU 0 waits from
/// 5,000 on and CPU 1 answers at 10,000.
const ASKED_AND_ANSWERED: [Part; 2] = [
    |machine, shared| {
        let moved = || machine.line_counters().same_socket;
        meet(machine, Access::Store, Met::Outbox(CpuId(0)));
        assert_eq!(moved(), 0, "no line of Linux's");
        meet(machine, Access::Rmw, Met::Inbox(CpuId(1)));
        meet(machine, Access::Rmw, Met::TopOfInbox(CpuId(1)));
        assert_eq!(moved(), 3, "the call, and the head of the queue twice: to be read, and to be exchanged");
        meet(machine, Access::Load, Met::Outbox(CpuId(0)));
        assert_eq!(moved(), 3, "who does not wait reads no call");
        machine.sleep_until(5_000, Cause::Idle);
        machine.running().charge_to(Cause::FlushSend);
        assert!(machine.wait_for_calls(), "interrupts answer others meanwhile");
        assert_eq!(machine.running().cause(), Cause::FlushWait);
        while shared.note.get() == 0 {
            machine.relax();
            meet(machine, Access::Load, Met::Outbox(CpuId(0)));
        }
        machine.end_of_calls();
        shared.note.set(machine.running().now());
        assert_eq!(moved(), 7, "the call, to be read once it is done");
    },
    |machine, shared| {
        machine.sleep_until(10_000, Cause::Idle);
        machine.take_calls();
        meet(machine, Access::Load, Met::Inbox(CpuId(1)));
        meet(machine, Access::Rmw, Met::Inbox(CpuId(1)));
        assert_eq!(machine.line_counters().same_socket, 4, "the head of the queue, exchanged once");
        meet(machine, Access::Load, Met::Outbox(CpuId(0)));
        meet(machine, Access::Rmw, Met::Outbox(CpuId(0)));
        shared.note.set(machine.running().now());
        assert_eq!(machine.line_counters().same_socket, 6, "the call: to be read, and to be written");
    },
];

#[test]
fn another_kernel_tells_others_by_its_own_lines_and_its_wait_ends_with_the_answer() {
    let ended_at = play_as(Code::of_preset("linux-4.20"), ASKED_AND_ANSWERED);
    assert!((10_000..12_000).contains(&ended_at), "{ended_at}");
}

#[test]
fn a_sibling_slows_while_it_executes_and_not_while_it_pauses_or_idles() {
    play([
        |machine, shared| {
            let slowed = machine.costs.smt_percent;
            assert!(slowed > 100);
            machine.sleep_until(500, Cause::Idle);
            assert_eq!(machine.work_percent(0), 100, "it idles");
            machine.sleep_until(1_500, Cause::Idle);
            assert_eq!(machine.shared_cycles(0, 1_000), 10 * slowed);
            machine.sleep_until(50_000, Cause::Idle);
            assert_eq!(machine.work_percent(0), 100, "it waits for the word");
            shared.word.0.store(1, ORDER);
            machine.sleep_until(60_000, Cause::Idle);
            assert_eq!(machine.work_percent(0), slowed, "it goes on");
        },
        |machine, shared| {
            machine.sleep_until(1_000, Cause::Idle);
            machine.running().become_busy_with(Class::Task);
            machine.sleep_until(2_000, Cause::User);
            while shared.word.0.load(ORDER) == 0 {
                machine.relax();
            }
            machine.sleep_until(GIVEN_UP_AT, Cause::User);
        },
    ]);
}
