//! A kernel that keeps its interrupts off: it issues, asks whether that is over, and answers in between.

use tlbkit::{CpuSetUpkeep, Hardware, Policy};

use crate::issue::{RING, answer, issue, page, several, two, wait};
use crate::machine::Delivery;

/// Nobody waits, and no interrupt arrives.
/// One flush more than can be outstanding is asked by `is_done`.
#[test]
fn inv_7_cpus_that_poll_with_interrupts_off_answer_each_other() {
    let world = several(2, 2 * (RING + 1), Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    world.delivery.set(Delivery::Lost);
    let mut issued = [0, 1].map(|cpu| (0..=RING).map(|n| issue(world, cpu, 2 * n + cpu)).collect::<Vec<_>>());
    let mut turns = 0;
    while issued.iter().any(|pending| !pending.is_empty()) {
        for (cpu, pending) in issued.iter_mut().enumerate() {
            while let Some(mut oldest) = pending.pop() {
                if !world.quiet(cpu, |c, _| oldest.is_done(&c)) {
                    pending.push(oldest);
                    break;
                }
                world.quiet(cpu, |_, _| wait(world, cpu, oldest));
            }
            answer(world, cpu);
        }
        turns += 1;
        assert!(turns < 100, "INV-7: both poll for ever");
    }
    for page_of_either in 0..2 * (RING + 1) {
        assert_eq!([0, 1].map(|cpu| world.touch(cpu, page(page_of_either))), [None, None]);
    }
}

/// Whoever polls asks again by itself: the hint is where it was, so the interrupt is enough.
#[test]
fn whoever_polls_sends_a_lost_interrupt_again_to_those_that_are_missing() {
    let world = two();
    world.delivery.set(Delivery::Lost);
    let mut pending = issue(world, 0, 0);
    assert!(!pending.is_done(&world.cpu(0)));
    world.deliver(1);
    assert!(!pending.is_done(&world.cpu(0)), "its interrupt is lost");
    world.delivery.set(Delivery::Queued);
    world.quiet(0, |c, _| c.missing().each(|cpu| world.cores[0].send_ipi(cpu)));
    world.deliver(1);
    assert!(pending.is_done(&world.cpu(0)), "the second interrupt was answered");
    world.quiet(0, |_, _| wait(world, 0, pending));
    assert_eq!(world.touch(1, page(0)), None);
}
