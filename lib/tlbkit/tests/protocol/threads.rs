//! Two real threads: senders that need each other, and a flush that meets a CPU in the middle of a switch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tlbkit::{CpuId, CpuSetUpkeep, Hardware, Late, Policy};

use crate::machine::root_of;
use crate::machine::thread::{Machine, Thread};

#[test]
fn inv_7_two_cpus_that_flush_at_each_other_both_finish() {
    let machine = Machine::new(Policy::default(), 2, 1);
    std::thread::scope(|scope| {
        for id in 0..2 {
            scope.spawn(move || {
                let cpu = Thread::new(machine, id);
                cpu.switch(0);
                for round in 0..2_000 {
                    cpu.touch(0, round % 8);
                    // No poll: only the waits answer.
                    cpu.revoke(0, &[round % 8]);
                }
                cpu.finish();
            });
        }
    });
}

/// CPU 1 stops after its CR3 write, before it says it runs the space; CPU 0 flushes the space meanwhile. CPU 1 goes
/// on when it was interrupted or the flush has returned: the first must come first.
fn flush_meets_switch(policy: Policy) {
    static FLUSHED: AtomicBool = AtomicBool::new(false);
    // SeqCst, here and below: one order of few events.
    FLUSHED.store(false, Ordering::SeqCst);
    let machine = Machine::new(policy, 2, 1);
    let (at_cr3, is_at_cr3) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let cpu = Thread::new(machine, 1);
            *cpu.hardware.kept.borrow_mut() = Some(Box::new(move |cr3| {
                if cr3.root() != root_of(0) || at_cr3.send(()).is_err() {
                    return;
                }
                let began = Instant::now();
                // SeqCst: as above.
                while !machine.threads.apics.pending[1].load(Ordering::SeqCst) {
                    // SeqCst: as above.
                    assert!(!FLUSHED.load(Ordering::SeqCst), "INV-2: a CPU in the middle of a switch was not told");
                    assert!(began.elapsed() < Duration::from_secs(300), "nothing happens");
                    std::thread::yield_now();
                }
            }));
            cpu.switch(0);
            cpu.hardware.take_interrupt();
            cpu.touch(0, 0);
            cpu.finish();
        });
        let cpu = Thread::new(machine, 0);
        is_at_cr3.recv().expect("the other CPU loads the space");
        cpu.revoke(0, &[0]);
        // SeqCst: as above.
        FLUSHED.store(true, Ordering::SeqCst);
        cpu.finish();
    });
}

#[test]
fn inv_2_a_cpu_in_the_middle_of_a_switch_is_told() {
    for cpu_set in [CpuSetUpkeep::Exact, CpuSetUpkeep::Trimmed { every: 0 }] {
        flush_meets_switch(Policy { cpu_set, ..Policy::default() });
    }
}

/// A lost interrupt costs a kernel that has chosen nothing a millisecond, and its machine stops after many seconds.
#[test]
fn who_sets_no_patience_has_that_of_the_documentation() {
    let cpu = Thread::new(Machine::new(Policy::default(), 1, 1), 0).hardware;
    assert_eq!((cpu.patience_turns(), cpu.patience_rounds()), (1 << 14, 1 << 10));
    assert_eq!((cpu.late(CpuId(0)), cpu.glances(), cpu.this_cpu()), (Late::AskAgain, 0, None));
}
