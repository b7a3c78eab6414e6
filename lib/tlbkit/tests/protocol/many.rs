//! More CPUs than a word of a set has bits: whoever is told stands in any word, and a flush looks at those alone.

use tlbkit::{Policy, Reason, TlbBatch};

use crate::machine::{Delivery, Owner, USER, World, interrupted};

/// CPU `sender` of 200 revokes what the CPUs `told` use; they answer in the order of `answers`, one a turn of its wait.
fn told_and_waited_for(sender: usize, told: &[usize], answers: impl Iterator<Item = usize>) {
    let world = World::new(Policy::default(), 200);
    let space = world.space();
    world.map(space, USER);
    for &cpu in told.iter().chain([&sender]) {
        world.switch(cpu, space);
        assert!(world.touch(cpu, USER).is_some());
    }
    world.forget_logs();
    world.delivery.set(Delivery::Queued);
    for cpu in answers {
        world.plan(move |world| world.deliver(cpu));
    }
    world.unmap(sender, space, &[USER]);
    assert_eq!(interrupted(&world.log(sender)), told.iter().map(|&cpu| cpu as u32).collect::<Vec<_>>());
    assert!(world.meanwhile.borrow().is_empty(), "cpu{sender} did not wait for all of {told:?}");
    assert!(told.iter().all(|&cpu| world.touch(cpu, USER).is_none()));
}

#[test]
fn inv_6_a_flush_reaches_whoever_is_told_in_any_word_and_waits_for_each() {
    for (sender, told) in [(70, &[3, 64, 127, 128, 199][..]), (0, &[65]), (199, &[1, 130]), (3, &[140, 191])] {
        told_and_waited_for(sender, told, told.iter().copied());
        told_and_waited_for(sender, told, told.iter().rev().copied());
    }
}

#[test]
fn inv_6_a_batch_reaches_whoever_runs_its_spaces_in_any_word() {
    let world = World::new(Policy::default(), 200);
    let cpus = [0, 70, 130, 199];
    for cpu in cpus {
        let space = world.space();
        world.map(space, USER);
        world.switch(cpu, space);
        assert!(world.touch(cpu, USER).is_some());
    }
    world.enter_kernel(0);
    world.forget_logs();
    let mut batch = TlbBatch::new(Vec::new());
    for space in 1..cpus.len() {
        let page = world.memory.borrow_mut().unhook(Owner::Space(space), USER).unwrap();
        batch.unmap(&world.cpu(0), world.at(space), page.stamp);
    }
    let freed = batch.flush(&world.cpu(0), Reason::Migrate).into_frames();
    assert_eq!(interrupted(&world.log(0)), [70, 130, 199]);
    world.memory.borrow_mut().free(&freed);
    world.audit();
}
