//! Counters: by reason and place, by size, and nothing when nobody asked.

use tlbkit::{
    Accounting, Batching, Compare, CpuStats, History, Place, Policy, RangeRule, Reason, SIZES, Scope, Stride, VirtAddr,
};

use crate::machine::{Did, Owner, USER, World};

fn world(accounting: Accounting) -> &'static World {
    let range = RangeRule::Ceiling { pages: 1000, compare: Compare::Above };
    let world = World::new(Policy { history: History { accounting, ..History::NONE }, range, ..Policy::default() }, 3);
    let space = world.space();
    (0..3).for_each(|cpu| world.switch(cpu, space));
    world
}

fn flush(world: &'static World, owner: Owner, pages: u64, why: Reason) {
    let mut gather = world.gather(owner);
    gather.range(&world.cpu(0), VirtAddr(USER), pages, Stride::Page4K, Scope::NonGlobal, why);
    world.finish(0, gather);
}

fn events(stats: &CpuStats, why: Reason) -> [u64; 3] {
    [Place::Local, Place::Remote, Place::Kernel].map(|place| stats.events(why, place))
}

#[test]
fn flushes_are_counted_by_reason_and_place() {
    let world = world(Accounting::On);
    flush(world, Owner::Space(0), 1, Reason::WriteProtect);
    flush(world, Owner::Space(0), 3, Reason::WriteProtect);
    flush(world, Owner::Kernel, 1, Reason::KernelRemove);
    let stats = world.cpu(0).stats().expect("counting is on");
    assert_eq!(events(stats, Reason::WriteProtect), [2, 4, 0]);
    assert_eq!(events(stats, Reason::KernelRemove), [0, 2, 1]);
    let others = Reason::ALL.into_iter().filter(|why| ![Reason::WriteProtect, Reason::KernelRemove].contains(why));
    assert!(others.into_iter().all(|why| events(stats, why) == [0; 3]));
    assert_eq!(events(world.cpu(1).stats().unwrap(), Reason::WriteProtect), [0; 3], "the initiator counts");
}

#[test]
fn sizes_have_their_row_and_what_has_none_is_everything() {
    let world = world(Accounting::On);
    for pages in [1, 3, 3, SIZES as u64, SIZES as u64 + 1, 2000] {
        flush(world, Owner::Space(0), pages, Reason::RemovePte);
    }
    let stats = world.cpu(0).stats().unwrap();
    assert_eq!([1, 2, 3, SIZES, 0].map(|pages| stats.size(pages).samples), [1, 0, 2, 1, 2]);
    assert_eq!((stats.size(3).cycles, stats.size(2).cycles), (200, 0), "two readings of the clock each");
}

#[test]
fn nothing_is_counted_and_no_clock_read_when_it_is_off() {
    let world = world(Accounting::Off);
    flush(world, Owner::Space(0), 1, Reason::RemovePte);
    assert!(world.cpu(0).stats().is_none());
    assert_eq!(world.cpus[0].clock_cycles.get(), 0);
    assert!(world.log(0).contains(&Did::Invlpg(USER)));
}

#[test]
fn a_flush_that_concerns_one_cpu_alone_is_counted_like_any_other() {
    let policy = Policy { history: History { accounting: Accounting::On, ..History::NONE }, ..Policy::default() };
    let world = World::new(policy, 1);
    let space = world.space();
    world.switch(0, space);
    flush(world, Owner::Space(space), 1, Reason::WriteProtect);
    let stats = world.cpu(0).stats().unwrap();
    assert_eq!(events(stats, Reason::WriteProtect), [1, 0, 0]);
    assert_eq!((stats.size(1).samples, stats.size(1).cycles), (1, 100), "two readings of the clock");
}

#[test]
fn what_is_flushed_last_is_counted_by_the_reason_of_what_was_named_and_sent_before() {
    let history = History { accounting: Accounting::On, batching: Batching::None, ..History::NONE };
    let world = World::new(Policy { history, ..Policy::default() }, 1);
    let mut gather = world.gather(Owner::Space(world.space()));
    gather.page(&world.cpu(0), VirtAddr(USER), Stride::Page4K, Scope::NonGlobal, Reason::WriteProtect);
    gather.flush_everything();
    world.finish(0, gather);
    assert_eq!(events(world.cpu(0).stats().unwrap(), Reason::WriteProtect), [2, 0, 0]);
}
