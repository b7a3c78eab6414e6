//! When the kernel takes the lock of its lists of pages, and for how long.

use std::cell::Cell;
use std::rc::Rc;

use tlbkit_machine::Machine;
use tlbkit_pmap::{Frame, Memory, Purpose};

use super::super::Kernel;
use super::super::memory::KernelMemory;
use super::super::settings::KernelSettings;
use super::act_first;
use crate::code::{Code, CountedLruLists, LruWork, Sweep};
use crate::observer::Cause;
use crate::run::Run;
use crate::run::stage::{Stage, rehearse, rehearse_with};

/// log2 of the bytes of a page, and of a large one.
const BASE: u8 = 12;
const LARGE: u8 = 21;
/// When the second CPU looks how long it must wait for the lock: what is before has been done by then.
const LOOKS_AT: u64 = 1_000_000;

fn code() -> &'static CountedLruLists {
    Code::TLBKIT.lru_lists().expect("our code has lists")
}

/// A full batch of pages: with the last of them it was put into the lists.
fn batch(memory: KernelMemory) -> Vec<Frame> {
    (0..code().batch).map(|_| memory.alloc(BASE, Purpose::Data).expect("memory")).collect()
}

/// CPU 0 does `act`, whose last act takes the lock at `LOOKS_AT`; returns how long CPU 1 waits for the lock from then.
fn others_wait(act: impl FnOnce(KernelMemory) + 'static) -> u64 {
    others_wait_with(None, act)
}

/// The same where a sweep begins like this.
fn others_wait_with(sweep: Option<Sweep>, act: impl FnOnce(KernelMemory) + 'static) -> u64 {
    let waited = Rc::new(Cell::new(None));
    let body = |stage: &mut Stage, kernel: &'static Kernel| {
        stage.boot(kernel).unwrap();
        let (machine, waits) = (kernel.machine(), Rc::clone(&waited));
        act_first(stage, kernel, 0, move || act(KernelMemory(kernel)));
        act_first(stage, kernel, 1, move || {
            machine.sleep_until(LOOKS_AT + 1, Cause::Idle);
            machine.change_lru_lists(LruWork { instructions: 0, locked: 0 });
            let spun = machine.running().ledger().of(Cause::LockSpin);
            waits.set(Some(spun.saturating_sub(machine.costs().lines.same_socket_cycles)));
        });
        stage.turn(kernel, || false);
    };
    let settings = KernelSettings { sweep, ..KernelSettings::default() };
    rehearse_with(2, |run| Run { kernel: settings, ..run }, body);
    waited.get().expect("the second CPU has looked")
}

/// How long CPU 1, which comes one cycle after it began, waits for a hold with this work: it looks once in each pause.
fn holds(work: impl IntoIterator<Item = LruWork>) -> u64 {
    let waits = Rc::new(Cell::new(0));
    let work = Vec::from_iter(work);
    rehearse(1, |_, kernel| {
        let costs = kernel.machine().costs();
        let cycles = |work: &LruWork| costs.instructions(work.instructions) + work.locked * costs.lines.locked_cycles;
        let held: u64 = work.iter().map(cycles).sum();
        waits.set((held - 1).next_multiple_of(costs.pause));
    });
    waits.get()
}

fn wait_until_looked_at(memory: KernelMemory) {
    memory.0.machine.sleep_until(LOOKS_AT, Cause::Idle);
}

#[test]
fn the_page_that_fills_a_batch_takes_the_lock_for_all_of_it() {
    let waited = others_wait(|memory| {
        // The lines come first, so that the last page waits for none.
        batch(memory);
        (1..code().batch).for_each(|_| assert!(memory.alloc(BASE, Purpose::Copy).is_some()));
        wait_until_looked_at(memory);
        assert!(memory.alloc(BASE, Purpose::Copy).is_some());
    });
    assert_eq!(waited, holds([code().putting_in(code().batch)]));
}

#[test]
fn tables_and_large_pages_are_in_no_list() {
    rehearse(1, |stage, kernel| {
        stage.boot(kernel).unwrap();
        act_first(stage, kernel, 0, move || {
            let memory = KernelMemory(kernel);
            // The first that takes the lock fetches lines.
            let fetched = || kernel.machine().line_counters().same_socket;
            (1..code().batch).for_each(|_| assert!(memory.alloc(BASE, Purpose::Copy).is_some()));
            let others = [memory.alloc(BASE, Purpose::Table), memory.alloc(LARGE, Purpose::Data)];
            others.into_iter().for_each(|frame| memory.free(frame.expect("memory")));
            assert_eq!(fetched(), 0);
            assert!(memory.alloc(BASE, Purpose::Copy).is_some());
            assert_ne!(fetched(), 0, "the batch is full");
        });
        stage.turn(kernel, || false);
    });
}

#[test]
fn a_page_that_is_freed_takes_the_lock_and_those_of_the_same_call_go_on_with_it() {
    let waited = others_wait(|memory| {
        let mut pages = batch(memory);
        wait_until_looked_at(memory);
        memory.0.lru.begin_call(0);
        pages.drain(..3).for_each(|page| memory.free(page));
    });
    let more = code().taking_out_one_more();
    assert_eq!(waited, holds([code().taking_out(1), more, more]));
}

#[test]
fn memory_that_is_not_there_is_neither_zeroed_nor_listed() {
    let waited = others_wait(|memory| {
        batch(memory);
        while memory.0.phys.alloc(LARGE, Purpose::Data).is_some() {}
        while memory.0.phys.alloc(BASE, Purpose::Data).is_some() {}
        wait_until_looked_at(memory);
        let now = memory.0.machine.running().now();
        assert!((0..code().batch).all(|_| memory.alloc(BASE, Purpose::Data).is_none()));
        assert_eq!(memory.0.machine.running().now(), now);
    });
    assert_eq!(waited, 0);
}

/// Lines that move between two threads that write pages and give each back, for each page.
fn lines_a_page(sweep: Sweep) -> f64 {
    let machine = Machine::builtin("ivybridge-8thread").unwrap();
    let mut workload = tlbkit_workloads::by_name("tlb-flush2").unwrap();
    ["threads=2", "rounds=1", "pages=100"].iter().for_each(|setting| workload.set(setting).unwrap());
    let policy = tlbkit::Policy::preset("linux-6.18").unwrap();
    let kernel = KernelSettings { sweep: Some(sweep), ..KernelSettings::default() };
    let run = Run { cpus: 2, kernel, ..Run::new(&machine, policy, workload) };
    run.execute().unwrap().lines.same_socket as f64 / 200.0
}

/// The lock and the lines that it guards move with each page then; else the pages wait for a batch to be full.
#[test]
fn the_lines_of_the_lists_move_at_each_page_that_is_given_back_where_a_sweep_drains() {
    let [drains, leaves] = [Sweep::Drains, Sweep::Leaves].map(lines_a_page);
    assert!(drains - leaves > 2.0, "{drains} and {leaves} lines a page");
}

#[test]
fn a_sweep_that_drains_takes_the_lock_for_the_new_pages_of_its_cpu() {
    let waited = |sweep| {
        others_wait_with(Some(sweep), |memory| {
            batch(memory);
            (0..3).for_each(|_| assert!(memory.alloc(BASE, Purpose::Copy).is_some()));
            wait_until_looked_at(memory);
            memory.begin_sweep();
        })
    };
    assert_eq!(waited(Sweep::Drains), holds([code().putting_in(3)]));
    assert_eq!(waited(Sweep::Leaves), 0);
}
