//! More CPUs than a word of a set has bits: whoever is told stands in any word, and a flush looks at those alone.

use tlbkit::{
    CpuSetUpkeep, Destroyed, Event, OthersMustFlush, Policy, Reason, Stride, Tables, TlbBatch, TlbGather, Translations,
    VirtAddr,
};

use crate::issue::RING;
use crate::machine::{Delivery, Did, Fate, Owner, USER, World, interrupted};

/// How many CPUs its flushes have said that they ask.
fn chosen(log: &[Did]) -> usize {
    log.iter().map(|did| if let Did::Event(Event::Chosen { asked, .. }) = did { *asked as usize } else { 0 }).sum()
}

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
    let log = world.log(sender);
    assert_eq!(interrupted(&log), told.iter().map(|&cpu| cpu as u32).collect::<Vec<_>>());
    assert_eq!(chosen(&log), told.len());
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

/// CPU 6 and those of `others`, among them CPU 70, whose bit in its word is that of CPU 6, run a space.
fn far(others: &[usize]) -> &'static World {
    let world = World::new(Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() }, 130);
    let space = world.space();
    others.iter().chain([&6]).for_each(|&cpu| world.switch(cpu, space));
    world.enter_kernel(6);
    world.delivery.set(Delivery::Queued);
    world.forget_logs();
    world
}

/// CPU 6 issues a flush of all that it has, and does not wait.
fn issue(world: &'static World) {
    let mut gather = TlbGather::new(Translations::OfSpace(world.at(0)), Vec::<u8>::new());
    gather.flush_everything();
    drop(gather.issue(&world.cpu(6)));
}

#[test]
fn a_flush_that_may_ask_nobody_finds_who_must_be_told_in_any_word() {
    let world = far(&[70]);
    let flush = |cpu: tlbkit::Cpu<'_, '_, _>| {
        cpu.flush_range_alone(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Tables::Kept)
    };
    assert_eq!(flush(world.cpu(6)), Err(OthersMustFlush));
}

#[test]
fn inv_6_a_mailbox_is_in_use_while_a_cpu_of_any_word_has_not_answered_and_that_one_is_missing() {
    let world = far(&[7, 70]);
    world.switch(70, world.space());
    issue(world);
    world.switch(70, 0);
    world.switch(7, 1);
    (1..RING).for_each(|_| issue(world));
    assert_eq!(world.cpu(6).missing().to_string(), "CPU 7, CPU 70", "in one mailbox or in another");
    world.deliver(7);
    issue(world);
    issue(world);
    assert_eq!(chosen(&world.log(6)), RING + 1, "of two more only one has found a mailbox");
}

#[test]
fn c_25_a_space_lives_until_a_lazy_cpu_of_any_word_has_left() {
    let world = far(&[70]);
    world.load_kernel(6);
    world.lazy(70);
    assert_eq!(world.destroy(6, 0), Destroyed::WhenUnreferenced);
    world.load_kernel(70);
    assert_eq!(world.memory.borrow().roots[0], Fate::Freed);
}
