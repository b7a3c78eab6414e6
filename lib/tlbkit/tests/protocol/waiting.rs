//! Waiting: with interrupts off it is an error, and whoever waits answers.

use tlbkit::{Event, LocalFlush, Policy};

use crate::machine::{Delivery, Did, USER, World};
use crate::misuse::complaint;

fn two(local_flush: LocalFlush) -> &'static World {
    let world = World::new(Policy { local_flush, ..Policy::default() }, 2);
    let space = world.space();
    for cpu in 0..2 {
        world.map(space, USER + cpu * 0x1000);
        world.switch(cpu as usize, space);
        world.touch(cpu as usize, USER);
    }
    world.forget_logs();
    world
}

/// Both flushes took effect, and the second CPU answered in its own wait: no interrupt came to it.
fn assert_answered_by_its_wait(world: &'static World) {
    assert_eq!((world.touch(0, USER + 0x1000), world.touch(1, USER)), (None, None));
    let answers = world.log(1).into_iter().filter(|did| matches!(did, Did::Event(Event::AnswerEnd(_)))).count();
    assert_eq!(answers, 1, "by its wait: its interrupt never came");
}

#[test]
#[should_panic(expected = "with interrupts off")]
fn inv_7_waiting_with_interrupts_off_is_an_error() {
    let world = two(LocalFlush::WhileRemote);
    world.enter_kernel(0);
    world.delivery.set(Delivery::Queued);
    world.cpus[0].irqs.set(false);
    world.plan(|_| panic!("it waits"));
    world.unmap(0, 0, &[USER]);
}

/// Its request may still be being read: the mailbox is nobody's until `bring_up` has waited for the answer.
#[test]
fn after_an_error_with_interrupts_off_a_cpu_flushes_again_once_it_was_brought_up() {
    let world = two(LocalFlush::WhileRemote);
    world.enter_kernel(0);
    world.delivery.set(Delivery::Queued);
    let unmap = |page: u64| complaint(|| world.unmap(0, 0, &[USER + page * 0x1000]));
    world.cpus[0].irqs.set(false);
    assert!(unmap(0).starts_with("waiting for other CPUs with interrupts off"));
    world.cpus[0].irqs.set(true);
    assert!(unmap(1).starts_with("a flush inside the wait of another"));
    world.plan(|world| world.deliver(1));
    world.bring_up(0);
    world.delivery.set(Delivery::AtOnce);
    world.map(0, USER);
    world.unmap(0, 0, &[USER]);
    assert_eq!(world.touch(1, USER), None);
}

#[test]
fn inv_7_flushing_with_interrupts_off_is_fine_where_nobody_must_be_told() {
    let world = two(LocalFlush::WhileRemote);
    world.switch(1, world.space());
    world.enter_kernel(0);
    world.cpus[0].irqs.set(false);
    world.unmap(0, 0, &[USER]);
}

#[test]
fn inv_7_two_cpus_that_wait_for_each_other_answer_each_other() {
    for local_flush in [LocalFlush::BeforeRemote, LocalFlush::WhileRemote] {
        let world = two(local_flush);
        world.delivery.set(Delivery::Queued);
        world.enter_kernel(0);
        world.enter_kernel(1);
        // From here on no interrupt arrives: only the waits themselves answer.
        world.plan(|world| {
            for _ in 0..3 {
                world.plan(|world| {
                    let mut late = Vec::new();
                    world.cpu(1).missing().for_each(|cpu| late.push(cpu.0));
                    assert_eq!(late, [0], "cpu1 cannot be answered yet");
                });
            }
            world.plan(|world| world.deliver(0));
            world.unmap(1, 0, &[USER + 0x1000]);
        });
        world.unmap(0, 0, &[USER]);
        assert_answered_by_its_wait(world);
    }
}

/// The other CPU answers at the third PAUSE. So many turns of a wait with that many glances before it.
#[test]
fn a_wait_that_is_over_at_a_glance_takes_no_turn() {
    for (glances, turns) in [(0, 3), (1, 2), (2, 1), (3, 0), (100, 0)] {
        let world = two(LocalFlush::WhileRemote);
        world.cpus[0].glances.set(glances);
        world.delivery.set(Delivery::Queued);
        world.enter_kernel(0);
        for _ in 0..2 {
            world.plan(|_| {});
        }
        world.plan(|world| world.deliver(1));
        world.unmap(0, 0, &[USER]);
        let waited = world.log(0).into_iter().filter(|did| matches!(did, Did::Event(Event::Waiting(_)))).count();
        assert_eq!(waited, turns, "after {glances} glances");
        assert!(world.meanwhile.borrow().is_empty(), "it looked no further than the answer");
        assert_eq!(world.touch(1, USER), None);
    }
}

#[test]
fn inv_7_two_cpus_that_only_glance_at_first_answer_each_other() {
    let world = two(LocalFlush::WhileRemote);
    world.cpus.iter().for_each(|core| core.glances.set(2));
    world.delivery.set(Delivery::Queued);
    world.enter_kernel(0);
    world.enter_kernel(1);
    world.plan(|world| {
        // Both glances of the second CPU are in vain; its turn then answers the first, whose interrupt does not come.
        for _ in 0..2 {
            world.plan(|_| {});
        }
        world.plan(|world| world.deliver(0));
        world.unmap(1, 0, &[USER + 0x1000]);
    });
    world.unmap(0, 0, &[USER]);
    assert_answered_by_its_wait(world);
}

#[test]
fn the_local_half_goes_first_or_while_the_others_work() {
    for (local_flush, is_first) in [(LocalFlush::BeforeRemote, true), (LocalFlush::WhileRemote, false)] {
        let world = two(local_flush);
        world.delivery.set(Delivery::Queued); // the other half is done in the wait, if there is one
        world.unmap(0, 0, &[USER]);
        let log = world.log(0);
        let place = |what: Did| log.iter().position(|did| *did == what);
        let sent = log.iter().position(|did| matches!(did, Did::Ipi(_) | Did::IpiToOthers));
        assert_eq!(place(Did::Invlpg(USER)) < sent, is_first, "{local_flush:?}");
        assert!(sent.is_some() && place(Did::Event(Event::FlushLocalDone)) < place(Did::Event(Event::FlushEnd)));
    }
}
