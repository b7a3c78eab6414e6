//! Which tasks wait for the mmap lock, how, and for whom.

use tlbkit_pmap::Region;
use tlbkit_workloads::calls;
use tlbkit_workloads::os::{Backing, Protection};

use super::super::mmap_lock::LockMode;
use super::super::{Kernel, TaskIndex};
use super::actors::{Diary, Kept, put};
use crate::mmu::{Access, Overlap};
use crate::observer::Cause;
use crate::run::stage::rehearse;

/// Nanoseconds: after these a writer has spun for one reader for long enough.
const SPINS_NS: u64 = 10_500;

/// One who takes the lock at `at_ns`, and has it for `holds_ns`.
#[derive(Clone, Copy)]
struct Taker {
    wants: LockMode,
    at_ns: u64,
    holds_ns: u64,
}

fn taker(wants: LockMode, at_ns: u64, holds_ns: u64) -> Taker {
    Taker { wants, at_ns, holds_ns }
}

/// The words for each of three takers: it comes, it has the lock, it lets go.
const NOTES: [[&str; 3]; 3] =
    [["0 comes", "0 takes", "0 leaves"], ["1 comes", "1 takes", "1 leaves"], ["2 comes", "2 takes", "2 leaves"]];

/// The takers, each a thread of one process on a separate core; what they did, and of the nth CPU from when it came
/// until it had the lock: cycles of idling, and of spinning.
fn play<const N: usize>(takers: [Taker; N]) -> (Diary, [[u64; 2]; N], f64) {
    let (diary, waits) = (Diary::default(), std::rc::Rc::new(std::cell::Cell::new([[0; 2]; N])));
    let cycles_a_ns = std::cell::Cell::new(0.0);
    rehearse(N, |stage, kernel| {
        stage.boot(kernel).unwrap();
        let process = kernel.new_process();
        cycles_a_ns.set(kernel.machine().costs().cycles_of_ns(1_000_000) as f64 / 1e6);
        for (n, taker) in takers.into_iter().enumerate() {
            let (diary, waits) = (diary.clone(), waits.clone());
            put(kernel, process, (n, Kept::Pinned), move |me| {
                let waited = take_for_a_while(kernel, (me, taker), &diary, NOTES[n]);
                let mut all = waits.get();
                all[n] = waited;
                waits.set(all);
            });
        }
        stage.turn(kernel, || kernel.is_done());
    });
    (diary, waits.get(), cycles_a_ns.get())
}

/// Returns the cycles that the CPU idled and spun for the lock.
fn take_for_a_while(
    kernel: &'static Kernel,
    (me, taker): (TaskIndex, Taker),
    diary: &Diary,
    [comes, takes, leaves]: [&'static str; 3],
) -> [u64; 2] {
    let machine = kernel.machine();
    let cycles = |ns| machine.costs().cycles_of_ns(ns);
    let spent = || [Cause::Idle, Cause::LockSpin].map(|cause| machine.running().ledger().of(cause));
    kernel.compute(me, cycles(taker.at_ns));
    diary.note(kernel, comes);
    let before = spent();
    kernel.lock_mmap(me, taker.wants);
    let after = spent();
    diary.note(kernel, takes);
    kernel.compute(me, cycles(taker.holds_ns));
    diary.note(kernel, leaves);
    kernel.unlock_mmap(me, taker.wants);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn a_writer_spins_for_a_reader_for_a_short_time_and_sleeps_then() {
    let (diary, waits, _) = play([taker(LockMode::Read, 0, 5_000), taker(LockMode::Write, 1_000, 100)]);
    assert_eq!(diary.what(), ["0 comes", "0 takes", "1 comes", "0 leaves", "1 takes", "1 leaves"]);
    assert!(waits[1][0] == 0 && waits[1][1] > 0, "it has spun and not slept: {waits:?}");

    let (diary, waits, cycles_a_ns) = play([taker(LockMode::Read, 0, 50_000), taker(LockMode::Write, 1_000, 100)]);
    assert_eq!(diary.what(), ["0 comes", "0 takes", "1 comes", "0 leaves", "1 takes", "1 leaves"]);
    let [idled, spun] = waits[1].map(|cycles| cycles as f64 / cycles_a_ns);
    assert!((spun - SPINS_NS as f64).abs() < 500.0, "{spun} ns of spinning for one reader");
    assert!(idled > 30_000.0, "{idled} ns of sleep, of a wait of 49,000");
}

#[test]
fn a_writer_spins_for_one_that_runs_as_long_as_it_has_the_lock() {
    let (diary, waits, _) = play([taker(LockMode::Write, 0, 200_000), taker(LockMode::Write, 1_000, 100)]);
    assert_eq!(diary.what(), ["0 comes", "0 takes", "1 comes", "0 leaves", "1 takes", "1 leaves"]);
    assert!(waits[1][0] == 0 && waits[1][1] > 0, "it has spun and not slept: {waits:?}");
}

#[test]
fn a_reader_that_comes_behind_a_writer_sleeps_though_readers_have_the_lock() {
    let writer_and_reader = |writer_at| {
        play([
            taker(LockMode::Read, 0, 60_000),
            taker(LockMode::Write, writer_at, 1_000),
            taker(LockMode::Read, 30_000, 1_000),
        ])
    };
    let (diary, waits, _) = writer_and_reader(1_000);
    let last = ["0 leaves", "1 takes", "1 leaves", "2 takes", "2 leaves"];
    assert_eq!(diary.what()[5 - 1..], last, "{:?}", diary.what());
    assert!(waits[2][0] > 0 && waits[2][1] == 0, "a reader does not spin: {waits:?}");
    let (diary, waits, _) = writer_and_reader(40_000);
    assert!(diary.when("2 takes") < diary.when("0 leaves"), "nobody waits yet: {:?}", diary.what());
    assert_eq!(waits[2], [0; 2]);
}

/// A thread touches a page while another has the lock from the beginning, for reading or for writing.
fn fault_beside(hold: LockMode) -> Diary {
    let diary = Diary::default();
    rehearse(2, |stage, kernel| {
        stage.boot(kernel).unwrap();
        let (process, machine, notes) = (kernel.new_process(), kernel.machine(), diary.clone());
        let region: Region = calls::region(1, Backing::AnonPrivate, Protection::ReadWrite);
        let va = machine.with_cpu(0, |cpu| process.vm.map_region(&cpu, region)).unwrap();
        let holder = taker(hold, 0, 50_000);
        let keeps = notes.clone();
        put(kernel, process, (0, Kept::Pinned), move |me| {
            take_for_a_while(kernel, (me, holder), &keeps, NOTES[0]);
        });
        put(kernel, process, (1, Kept::Pinned), move |me| {
            kernel.compute(me, machine.costs().cycles_of_ns(5_000));
            kernel.touch(me, va, Access::Write, Overlap::Dependent);
            notes.note(kernel, "touched");
        });
        stage.turn(kernel, || kernel.is_done());
    });
    diary
}

#[test]
fn a_fault_takes_the_lock_for_reading() {
    let beside = |hold| {
        let diary = fault_beside(hold);
        diary.when("touched") < diary.when("0 leaves")
    };
    assert!(beside(LockMode::Read), "it shares the lock");
    assert!(!beside(LockMode::Write), "it waits for who changes the regions");
}
