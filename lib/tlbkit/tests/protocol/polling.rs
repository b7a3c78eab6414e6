//! A kernel that keeps its interrupts off: it issues, asks whether that is over, and answers in between.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tlbkit::{CpuId, CpuSetUpkeep, Hardware, Late, Policy};

use crate::issue::{Issued, RING, answer, issue, page, several, two, wait};
use crate::machine::{Delivery, Owner, World, interrupted};

/// Nobody waits, and no interrupt arrives. Each CPU issues one flush more than can be outstanding: `is_done` asks it.
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
    world.quiet(0, |c, _| c.missing().for_each(|cpu| world.cpus[0].send_ipi(cpu)));
    world.deliver(1);
    assert!(pending.is_done(&world.cpu(0)), "the second interrupt was answered");
    world.quiet(0, |_, _| wait(world, 0, pending));
    assert_eq!(world.touch(1, page(0)), None);
}

/// `cpu` polls with its interrupts off, and frees.
fn poll(world: &'static World, cpu: usize, mut pending: Issued) {
    world.quiet(cpu, |c, _| pending.poll(&c));
    world.quiet(cpu, |_, _| wait(world, cpu, pending));
}

/// No interrupt arrives; the second CPU issues within the wait of the first, and waits as well.
#[test]
fn inv_7_two_polled_waits_with_interrupts_off_answer_each_other() {
    let world = two();
    world.delivery.set(Delivery::Lost);
    let first = issue(world, 0, 0);
    world.plan(|world| {
        let second = issue(world, 1, 1);
        world.plan(|world| answer(world, 0));
        poll(world, 1, second);
    });
    poll(world, 0, first);
    assert_eq!([world.touch(0, page(1)), world.touch(1, page(0))], [None, None]);
}

/// More than can be outstanding: the last is asked by the wait itself, which another CPU goes on with.
#[test]
fn a_polled_wait_asks_for_what_found_no_mailbox_and_may_be_another_cpu_s() {
    let world = several(3, RING + 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    let mut issued: Vec<_> = (0..=RING).map(|n| issue(world, 0, n)).collect();
    let last = issued.pop().expect("one more than fits");
    for _ in 0..3 {
        world.plan(|world| (1..3).for_each(|cpu| answer(world, cpu)));
    }
    poll(world, 0, last);
    for _ in 0..3 {
        world.plan(|world| (0..2).for_each(|cpu| answer(world, cpu)));
    }
    issued.into_iter().for_each(|pending| poll(world, 2, pending));
    for n in 0..=RING {
        assert_eq!([0, 1, 2].map(|cpu| world.touch(cpu, page(n))), [None; 3]);
    }
}

#[test]
fn a_polled_wait_names_who_is_late_and_gives_up_as_every_wait_does() {
    let world = two();
    world.delivery.set(Delivery::Lost);
    world.cpus[0].about_late.set(Late::AskAgain);
    world.cpus[0].patience_rounds.set(3);
    let mut pending = issue(world, 0, 0);
    let said = catch_unwind(AssertUnwindSafe(|| world.quiet(0, |c, _| pending.poll(&c)))).unwrap_err();
    assert_eq!(said.downcast_ref::<String>().unwrap(), "a flush is not answered by CPU 1");
    assert_eq!(*world.cpus[0].was_late.borrow(), [1; 3], "as often as the kernel said");
}

/// None of the two has a mailbox left: who waits for one answers as well.
#[test]
fn inv_7_who_polls_for_a_mailbox_answers() {
    let world = several(2, 2 * (RING + 1), Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    world.delivery.set(Delivery::Lost);
    let mut issued = [0, 1].map(|cpu| (0..=RING).map(|n| issue(world, cpu, 2 * n + cpu)).collect::<Vec<_>>());
    let last = issued[0].pop().expect("one more than fits");
    world.plan(|world| {
        world.cpu(1).missing().for_each(|cpu| panic!("{cpu:?} has not answered"));
    });
    for _ in 0..2 {
        world.plan(|world| answer(world, 1));
    }
    poll(world, 0, last);
}

#[test]
fn a_polled_wait_names_who_is_late_elsewhere_and_with_a_mailbox() {
    for (waiter, count) in [(0, 1), (0, RING + 1), (2, 1)] {
        let world = several(3, RING + 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
        world.delivery.set(Delivery::Lost);
        world.cpus[waiter].patience_rounds.set(3);
        let mut issued: Vec<_> = (0..count).map(|n| issue(world, 0, n)).collect();
        answer(world, 2);
        let mut pending = issued.pop().expect("one at least");
        let said = catch_unwind(AssertUnwindSafe(|| world.quiet(waiter, |c, _| pending.poll(&c)))).unwrap_err();
        let said = said.downcast_ref::<String>().unwrap();
        assert_eq!(said, "a flush is not answered by CPU 1", "{count} polled on CPU {waiter}");
        let late = world.cpus[waiter].was_late.borrow();
        assert_eq!(*late, vec![1; 3 * count.min(RING)], "asked about in each mailbox that is waited for");
    }
}

/// CPUs 1 and 2 do not answer, and CPU 1 is known to be gone. Its bit stays where another CPU waits, which only reads.
#[test]
fn a_cpu_that_was_declared_stopped_is_not_named() {
    for waiter in [0, 3] {
        let world = several(4, 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
        world.delivery.set(Delivery::Lost);
        world.cpus[waiter].patience_rounds.set(3);
        let mut pending = issue(world, 0, 0);
        answer(world, 3);
        world.tlb.declare_stopped(CpuId(1));
        let said = catch_unwind(AssertUnwindSafe(|| world.quiet(waiter, |c, _| pending.poll(&c)))).unwrap_err();
        assert_eq!(said.downcast_ref::<String>().unwrap(), "a flush is not answered by CPU 2", "on CPU {waiter}");
        assert_eq!(world.cpu(0).missing().to_string(), "CPU 2");
    }
}

/// Who is missing in another mailbox is named too, and nothing is withdrawn there in the wait.
#[test]
fn a_cpu_that_was_declared_stopped_is_not_named_for_another_mailbox() {
    let world = several(3, 2, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    world.delivery.set(Delivery::Lost);
    world.cpus[0].patience_rounds.set(3);
    let _outstanding = issue(world, 0, 0);
    world.plan(|world| world.tlb.declare_stopped(CpuId(1)));
    let said = catch_unwind(AssertUnwindSafe(|| world.unmap(0, 0, &[page(1)]))).unwrap_err();
    assert_eq!(said.downcast_ref::<String>().unwrap(), "a flush is not answered by CPU 2");
}

/// It was issued on CPU 0, which flushed then; CPU 1 asks, and is nobody whom it would ask.
#[test]
fn what_was_only_announced_is_asked_and_flushed_by_the_cpu_that_polls() {
    let world = several(3, RING + 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    let _issued: Vec<_> = (0..RING).map(|n| issue(world, 0, n)).collect();
    answer(world, 1);
    assert!(world.touch(1, page(RING)).is_some());
    let last = issue(world, 0, RING);
    world.plan(|world| [0, 2].iter().for_each(|&cpu| answer(world, cpu)));
    poll(world, 1, last);
    assert_eq!([0, 1, 2].map(|cpu| world.touch(cpu, page(RING))), [None; 3]);
}

#[test]
fn nothing_is_owed_between_poll_and_wait() {
    let world = two();
    let mut pending = issue(world, 0, 0);
    world.plan(|world| answer(world, 1));
    world.quiet(0, |c, _| pending.poll(&c));
    world.forget_logs();
    world.finish(1, world.gather(Owner::Space(0)));
    assert_eq!(interrupted(&world.log(1)), []);
    wait(world, 0, pending);
}

/// Those that are asked at last have all the patience: what a mailbox took is none of theirs.
#[test]
fn the_patience_with_who_is_asked_begins_when_he_is() {
    let world = several(2, RING + 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    world.delivery.set(Delivery::Lost);
    world.cpus[0].patience_rounds.set(3);
    let mut issued: Vec<_> = (0..=RING).map(|n| issue(world, 0, n)).collect();
    let last = issued.pop().expect("one more than fits");
    // Of 24 turns in which nobody answers a mailbox takes 20, and who is asked then 10.
    for turn in 1..=30 {
        world.plan(move |world| {
            if turn % 10 == 0 && turn != 10 {
                answer(world, 1);
            }
        });
    }
    poll(world, 0, last);
}
