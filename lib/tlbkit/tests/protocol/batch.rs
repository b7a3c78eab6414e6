//! The batch: one flush for many spaces, and what those must do who come before it.

use tlbkit::sync::Ordering;
use tlbkit::{CpuId, Event, GracePeriods, Invpcid, Passed, Policy, Reason, TlbBatch};
use tlbkit_testkit::leak;

use crate::machine::{Delivery, Did, Owner, USER, World, cr3s, interrupted, invlpgs};

type Batch = TlbBatch<Vec<usize>>;

/// `cpus` CPUs and as many spaces; each space has a page at `USER`, and CPU n runs space n and holds its page.
fn world(cpus: usize) -> &'static World {
    let world = World::new(Policy::default(), cpus);
    for cpu in 0..cpus {
        let space = world.space();
        world.map(space, USER);
        world.map(space, USER + 4096);
        world.switch(cpu, space);
        warm(world, cpu);
    }
    world.forget_logs();
    world
}

fn warm(world: &'static World, cpu: usize) {
    assert!(world.touch(cpu, USER).is_some() && world.touch(cpu, USER + 4096).is_some());
    world.enter_kernel(cpu);
}

/// CPU 0 takes the page at `USER` out of each of `spaces`, as reclaim does.
fn evict(world: &'static World, batch: &mut Batch, spaces: &[usize]) {
    for &space in spaces {
        let page = world.memory.borrow_mut().unhook(Owner::Space(space), USER).unwrap();
        batch.unmap(&world.cpu(0), world.at(space), page.stamp);
    }
}

fn finish(world: &'static World, batch: Batch) {
    world.enter_kernel(0);
    let freed = batch.flush(&world.cpu(0), Reason::Migrate).into_frames();
    world.memory.borrow_mut().free(&freed);
    world.audit();
}

/// Flushes an unmap of `space` on `cpu` that found nothing.
fn unmap_nothing(world: &'static World, cpu: usize, space: usize) {
    let gather = world.gather(Owner::Space(space));
    assert!(gather.is_empty());
    world.finish(cpu, gather);
}

fn is_flushed_whole(world: &World, cpu: usize) -> bool {
    cr3s(&world.log(cpu)).iter().any(|cr3| !cr3.keeps())
}

#[test]
fn one_flush_serves_many_spaces_and_asks_each_cpu_once() {
    let world = world(4);
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[0, 1, 2]);
    assert!(world.log(0).is_empty(), "naming tells nobody");
    finish(world, batch);
    let log = world.log(0);
    assert_eq!(interrupted(&log), [1, 2], "CPU 3 runs another space");
    assert!(cr3s(&log).iter().any(|cr3| !cr3.keeps()), "this CPU runs one of them");
    assert_eq!([1, 2, 3].map(|cpu| is_flushed_whole(world, cpu)), [true, true, false]);
    world.revisit_all();
}

fn periods(cpus: usize) -> GracePeriods<'static> {
    GracePeriods::new(leak((0..cpus).map(|_| Passed::new())))
}

/// Where CPUs 1 and 3 share a bit, it is clear when both have passed.
#[test]
fn inv_6_a_deferred_batch_interrupts_the_cpus_that_have_not_passed_since() {
    let (world, periods) = (world(4), periods(4));
    let mut batch = Batch::new(Vec::new());
    world.quiet(2, |cpu, irqs| periods.pass(&cpu, irqs));
    evict(world, &mut batch, &[0, 1, 2]);
    let deferred = batch.defer(&world.cpu(0), &periods);
    assert!(world.log(0).is_empty(), "nobody is told");
    world.quiet(1, |cpu, irqs| periods.pass(&cpu, irqs));
    assert!(is_flushed_whole(world, 1), "to pass is to flush");
    world.enter_kernel(0);
    let freed = deferred.flush(&world.cpu(0), &periods, Reason::RemovePte).into_frames();
    let expected: &[u32] = if cfg!(narrow_sets) { &[1, 2] } else { &[2] };
    assert_eq!(interrupted(&world.log(0)), expected, "CPU 1 has passed since, CPU 2 before, CPU 3 runs another space");
    world.memory.borrow_mut().free(&freed);
    world.audit();
}

/// The space of CPU 2 is only in the second batch, that of CPU 1 in both, and that of CPU 3 in neither.
#[test]
fn inv_6_two_deferred_batches_are_one_flush_and_nobody_owes_anything_then() {
    let (world, periods) = (world(4), periods(4));
    let [mut first, mut second] = [(); 2].map(|()| Batch::new(Vec::new()));
    evict(world, &mut first, &[0, 1]);
    evict(world, &mut second, &[2]);
    second.revoke(&world.cpu(0), world.at(1));
    let mut deferred = first.defer(&world.cpu(0), &periods);
    deferred.fold(&world.cpu(0), second.defer(&world.cpu(0), &periods));
    world.enter_kernel(0);
    let freed = deferred.flush(&world.cpu(0), &periods, Reason::RemovePte).into_frames();
    assert_eq!((interrupted(&world.log(0)), freed.len()), (vec![1, 2], 3));
    world.memory.borrow_mut().free(&freed);
    world.audit();
    world.forget_logs();
    (0..3).for_each(|space| unmap_nothing(world, 0, space));
    assert!(world.log(0).is_empty(), "nothing is owed");
}

#[test]
fn c_75_who_has_passed_is_not_asked_and_if_all_have_nothing_is_flushed() {
    let (world, periods) = (world(3), periods(3));
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[0, 1, 2]);
    let deferred = batch.defer(&world.cpu(0), &periods);
    (1..3).for_each(|other| world.quiet(other, |cpu, irqs| periods.pass(&cpu, irqs)));
    world.enter_kernel(0);
    let freed = deferred.flush(&world.cpu(0), &periods, Reason::RemovePte).into_frames();
    let log = world.log(0);
    assert!(cr3s(&log).iter().any(|cr3| !cr3.keeps()), "it has passed");
    assert!(!log.contains(&Did::Event(Event::FlushEnd)), "and flushes nothing more");
    world.memory.borrow_mut().free(&freed);
    world.audit();
    world.forget_logs();
    unmap_nothing(world, 0, 1);
    assert!(world.log(0).is_empty(), "nothing is owed");
}

/// Nobody knows what mapped it, so it does not help to have passed.
#[test]
fn inv_9_a_deferred_frame_of_which_nothing_was_recorded_waits_for_a_flush_of_everything() {
    let (world, periods) = (world(3), periods(3));
    let mut batch = Batch::new(Vec::new());
    batch.hold(7);
    let deferred = batch.defer(&world.cpu(0), &periods);
    (1..3).for_each(|other| world.quiet(other, |cpu, irqs| periods.pass(&cpu, irqs)));
    world.enter_kernel(0);
    let freed = deferred.flush(&world.cpu(0), &periods, Reason::RemovePte).into_frames();
    let log = world.log(0);
    assert!(log.contains(&Did::IpiToOthers) || interrupted(&log) == [1, 2], "{log:?}");
    assert_eq!(freed, [7]);
}

/// What another batch has recorded says nothing of it.
#[test]
fn inv_9_a_frame_of_which_nothing_was_recorded_stays_one_when_batches_are_folded() {
    for is_first in [true, false] {
        let (world, periods) = (world(3), periods(3));
        let [mut unnamed, mut named] = [(); 2].map(|()| Batch::new(Vec::new()));
        let mapped_on_cpu_2 = world.memory.borrow_mut().unhook(Owner::Space(2), USER).unwrap();
        unnamed.hold(mapped_on_cpu_2.stamp);
        evict(world, &mut named, &[1]);
        let [first, second] = if is_first { [unnamed, named] } else { [named, unnamed] };
        let mut deferred = first.defer(&world.cpu(0), &periods);
        deferred.fold(&world.cpu(0), second.defer(&world.cpu(0), &periods));
        world.enter_kernel(0);
        let freed = deferred.flush(&world.cpu(0), &periods, Reason::RemovePte).into_frames();
        world.memory.borrow_mut().free(&freed);
        assert_eq!((freed.len(), world.touch(2, USER)), (2, None));
        world.audit();
        world.forget_logs();
        unmap_nothing(world, 0, 1);
        assert!(world.log(0).is_empty(), "nothing is owed");
    }
}

#[test]
#[should_panic(expected = "page tables are not deferred")]
fn c_20_a_batch_with_a_page_table_is_not_deferred() {
    let (world, periods) = (world(2), periods(2));
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[1]);
    let table = world.memory.borrow_mut().unhook_table(Owner::Space(1), USER);
    assert!(!batch.has_tables(), "there are none yet");
    batch.unmap_table(&world.cpu(0), world.at(1), table.unwrap_or_default());
    let _never = batch.defer(&world.cpu(0), &periods);
}

#[test]
fn inv_5_a_lazy_cpu_is_left_alone_unless_a_table_is_freed() {
    for is_table in [false, true] {
        let world = world(2);
        world.quiet(1, |cpu, irqs| cpu.enter_lazy(irqs));
        world.cpus[1].kept.task.set(None);
        let mut batch = Batch::new(Vec::new());
        evict(world, &mut batch, &[1]);
        if is_table {
            let page = world.memory.borrow_mut().unhook(Owner::Space(1), USER + 4096).unwrap();
            let table = world.memory.borrow_mut().unhook_table(Owner::Space(1), USER).unwrap();
            batch.unmap(&world.cpu(0), world.at(1), page.stamp);
            batch.unmap_table(&world.cpu(0), world.at(1), table);
        }
        world.forget_logs();
        finish(world, batch);
        assert_eq!(interrupted(&world.log(0)), if is_table { vec![1] } else { vec![] });
        world.forget_logs();
        world.switch(1, 1);
        assert!(is_flushed_whole(world, 1), "it finds the generation when it comes back");
    }
}

/// The kernel's own tables count as lazy, and are no space that a batch could make this CPU leave.
#[test]
fn a_cpu_on_the_kernels_tables_leaves_nothing_for_a_batch() {
    let world = world(2);
    world.load_kernel(0);
    let mut batch = Batch::new(Vec::new());
    let page = world.memory.borrow_mut().unhook(Owner::Space(1), USER).unwrap();
    batch.unmap(&world.cpu(0), world.at(1), page.stamp);
    let page = world.memory.borrow_mut().unhook(Owner::Space(1), USER + 4096).unwrap();
    batch.unmap(&world.cpu(0), world.at(1), page.stamp);
    let table = world.memory.borrow_mut().unhook_table(Owner::Space(1), USER).unwrap();
    batch.unmap_table(&world.cpu(0), world.at(1), table);
    world.forget_logs();
    finish(world, batch);
    assert!(!world.log(0).iter().any(|did| matches!(did, Did::Event(Event::LazyLeft(_)))), "it holds no space");
}

#[test]
fn a_cpu_that_has_caught_up_by_itself_flushes_once() {
    let world = world(2);
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[1]);
    world.switch(1, 0);
    world.switch(1, 1);
    world.forget_logs();
    finish(world, batch);
    assert_eq!(interrupted(&world.log(0)), [1], "it may have read the old generation");
    let log = world.log(1);
    assert!(cr3s(&log).is_empty() && log.contains(&Did::Event(Event::AlreadyCurrent)));
}

#[test]
fn c_75_an_unmap_that_finds_nothing_flushes_what_a_batch_owes() {
    let world = world(2);
    world.switch(0, 1);
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[1]);
    world.forget_logs();
    // CPU 0 unmaps the page that is gone, and would tell its program that nobody can use it any more.
    unmap_nothing(world, 0, 1);
    assert_eq!((interrupted(&world.log(0)), world.touch(1, USER)), (vec![1], None));
    world.forget_logs();
    world.cpu(0).drain(world.at(1));
    assert_eq!(interrupted(&world.log(0)), [1], "the batch is still open");
    finish(world, batch);
    world.forget_logs();
    unmap_nothing(world, 0, 1);
    world.cpu(0).drain(world.at(1));
    unmap_nothing(world, 0, 0);
    assert!(world.log(0).is_empty(), "nothing is owed any more");
}

#[test]
fn c_75_an_unmap_of_another_page_flushes_what_a_batch_owes_with_its_own() {
    let world = world(2);
    world.switch(0, 1);
    warm(world, 0);
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[1]);
    world.forget_logs();
    world.unmap(0, 1, &[USER + 4096]);
    for cpu in 0..2 {
        let log = world.log(cpu);
        assert_eq!(invlpgs(&log), [], "INV-4: two generations on, a page is not enough");
        assert!(cr3s(&log).iter().any(|cr3| !cr3.keeps()));
        assert_eq!(world.touch(cpu, USER), None);
    }
    finish(world, batch);
}

#[test]
fn inv_1_a_frame_without_a_name_comes_out_flushed() {
    let world = world(3);
    let mut batch = Batch::new(Vec::new());
    let page = world.memory.borrow_mut().unhook(Owner::Space(2), USER).unwrap();
    batch.hold(page.stamp);
    finish(world, batch);
    for cpu in 0..3 {
        assert!(world.log(cpu).contains(&Did::Invpcid(Invpcid::AllAndGlobals)), "CPU {cpu}");
    }
}

#[test]
fn a_batch_of_nothing_does_nothing_and_one_that_is_dropped_keeps_its_debts() {
    let world = world(2);
    finish(world, Batch::new(Vec::new()));
    assert!(world.log(0).is_empty());
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[1]);
    drop(batch);
    for _ in 0..2 {
        world.forget_logs();
        unmap_nothing(world, 0, 1);
        assert_eq!(interrupted(&world.log(0)), [1]);
    }
}

#[test]
fn a_batch_is_flushed_by_another_cpu_than_named_it() {
    let world = world(4);
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[0, 1]);
    world.enter_kernel(2);
    let freed = batch.flush(&world.cpu(2), Reason::Migrate).into_frames();
    assert_eq!(interrupted(&world.log(2)), [0, 1], "the one that named is one of them");
    world.memory.borrow_mut().free(&freed);
    world.audit();
}

#[test]
fn a_batch_that_names_a_space_twice_owes_to_it_once_and_to_no_other() {
    let world = world(3);
    world.switch(0, 1);
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[1]);
    let page = world.memory.borrow_mut().unhook(Owner::Space(1), USER + 4096).unwrap();
    batch.unmap(&world.cpu(0), world.at(1), page.stamp);
    world.forget_logs();
    unmap_nothing(world, 0, 2);
    assert!(world.log(0).is_empty(), "nothing is owed to another space");
    finish(world, batch);
    world.forget_logs();
    unmap_nothing(world, 0, 1);
    assert!(world.log(0).is_empty(), "nothing is owed any more");
}

#[test]
fn a_batch_is_used_again_and_owes_and_holds_only_what_was_named_since() {
    let world = world(3);
    let mut batch = Batch::new(Vec::new());
    for space in [1, 2] {
        evict(world, &mut batch, &[space]);
        world.enter_kernel(0);
        let mut freed = Vec::new();
        batch.flush_and_reuse(&world.cpu(0), Reason::Migrate, |frames| freed.append(frames));
        assert!(batch.is_empty());
        assert_eq!(
            (freed.len(), interrupted(&world.log(0))),
            (1, vec![space as u32]),
            "the other space was named before"
        );
        world.memory.borrow_mut().free(&freed);
        world.audit();
        world.forget_logs();
    }
    unmap_nothing(world, 1, 1);
    assert!(!is_flushed_whole(world, 1), "nothing is owed any more");
    finish(world, batch);
    assert!(interrupted(&world.log(0)).is_empty(), "nothing was named, nothing is held");
}

/// All are in the sets of both spaces, whose ids share their bits with the kernel's name and with that of no space.
#[test]
fn a_batch_asks_who_runs_one_of_its_spaces_and_if_tables_are_freed_who_holds_one_lazily() {
    for (frees_tables, expected) in [(false, vec![1]), (true, vec![1, 3])] {
        let world = World::new(Policy::default(), 6);
        while world.tlb.fresh_id().number() % 64 != 62 {}
        let [first, second, other] = [world.space(), world.space(), world.space()];
        for (cpu, space) in (1..6).flat_map(|cpu| [second, first].map(|space| (cpu, space))) {
            world.switch(cpu, space);
        }
        world.switch(2, other);
        world.lazy(3);
        world.load_kernel(4);
        world.offline(5);
        world.tlb.online().add(CpuId(5), Ordering::Relaxed); // Relaxed: one thread; it is just leaving, or coming
        let mut batch = TlbBatch::new(Vec::<usize>::new());
        batch.revoke(&world.cpu(0), world.at(second));
        if frees_tables {
            batch.unmap_table(&world.cpu(0), world.at(first), 0);
        } else {
            batch.revoke(&world.cpu(0), world.at(first));
        }
        world.forget_logs();
        let _nothing = batch.flush(&world.cpu(0), Reason::Migrate);
        assert_eq!(interrupted(&world.log(0)), expected);
    }
}

#[test]
fn a_cpu_that_goes_idle_before_it_answers_a_batch_keeps_what_it_holds() {
    let world = world(2);
    let mut batch = Batch::new(Vec::new());
    evict(world, &mut batch, &[1]);
    world.delivery.set(Delivery::Queued);
    world.plan(|world| world.lazy(1));
    finish(world, batch);
    assert_eq!((interrupted(&world.log(0)), cr3s(&world.log(1))), (vec![1], vec![]));
    world.switch(1, 1);
    assert_eq!(world.touch(1, USER), None);
}
