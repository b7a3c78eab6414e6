//! INV-6 for the kernel's own pages: CPUs that come, go, and stop while one of them is revoked.

use std::rc::Rc;

use loom::thread;
use tlbkit::Event;
use tlbkit::sync::Ordering;

use crate::cpu::Cpu;
use crate::explore::check;
use crate::machine::Setup;
use crate::memory::KERNEL;

fn setup() -> Setup {
    Setup { kernel_pages: 1, ..Setup::default() }
}

/// One CPU takes the kernel's page away.
fn revoke(cpu: &Cpu) {
    cpu.unmap(KERNEL, &[0]);
}

/// Another comes up meanwhile, and reads it.
fn come_up(cpu: &Cpu) {
    cpu.bring_up();
    cpu.access_kernel(0);
}

#[test]
fn inv_6_bring_up_meets_a_kernel_flush() {
    check(setup(), |[_, cpu]| cpu.offline(), [revoke, come_up]);
}

/// It forgets nothing, since nobody can have asked it before; what is asked from then on is answered.
#[test]
fn inv_6_a_first_bring_up_meets_a_kernel_flush() {
    check(Setup { up: 1, ..setup() }, |_| {}, [revoke, come_up]);
}

/// Whoever finds the newcomer asks everybody, and so by one interrupt to all.
#[test]
fn inv_7_a_first_bring_up_meets_one_who_asks_everybody() {
    check(Setup { up: 2, preemptions: 2, ..setup() }, |_| {}, [revoke, |cpu| cpu.access_kernel(0), come_up]);
}

#[test]
fn inv_6_offline_meets_a_kernel_flush() {
    check(
        setup(),
        |_| {},
        [revoke, |cpu| {
            cpu.access_kernel(0);
            cpu.offline();
        }],
    );
}

/// A CPU that resumes was never taken out: it may be asked at any moment of its start.
#[test]
fn inv_7_resume_meets_a_kernel_flush() {
    check(Setup { preemptions: 2, ..setup() }, |_| {}, [revoke, come_up]);
}

#[test]
fn inv_7_nobody_waits_for_a_cpu_that_stopped() {
    check(
        setup(),
        |_| {},
        [revoke, |cpu| {
            cpu.access_kernel(0);
            cpu.stop();
        }],
    );
}

/// CPU 1 leaves when it was chosen, and is asked while it comes back. What it finds then may be taken back already, and
/// the next request written before it has ended its answer.
#[test]
fn inv_6_a_return_meets_a_request_that_is_taken_back() {
    check(
        Setup { kernel_pages: 2, preemptions: 2, ..Setup::default() },
        |_| {},
        [
            |cpu| {
                let is_chosen = |event: &Event| matches!(event, Event::Chosen { .. });
                let machine = Rc::clone(&cpu.machine);
                cpu.core().once(is_chosen, move || {
                    machine.unlocked.store(1, Ordering::Relaxed); // Relaxed: it orders nothing
                    thread::yield_now();
                });
                let issued = cpu.issue(KERNEL, &[0]);
                cpu.wait(issued);
                cpu.unmap(KERNEL, &[1]);
            },
            |cpu| {
                while cpu.machine.unlocked.load(Ordering::Relaxed) == 0 {
                    thread::yield_now(); // Relaxed: as above
                }
                cpu.access_kernel(0);
                cpu.offline();
                cpu.core().once(|event| matches!(event, Event::AnswerEnd(_)), thread::yield_now);
                cpu.bring_up();
                cpu.access_kernel(1);
            },
        ],
    );
}
