//! Requests that are acknowledged before they are carried out: which, what an NMI is told meanwhile, and what becomes
//! of a CPU that is stopped in between (C-55).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use tlbkit::{Acknowledgement, CpuId, Policy, Reason, Stride, VirtAddr};

use crate::machine::{KERNEL, Owner, USER, World};

const EARLY: Policy = Policy { acknowledgement: Acknowledgement::BeforeFlush, ..Policy::DEFAULT };

/// How an NMI finds the responder, just before it flushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    is_waited_for: bool,
    may_touch_user_memory: bool,
}

const BEFORE_ITS_FLUSH: Found = Found { is_waited_for: false, may_touch_user_memory: false };
const AFTER_ITS_FLUSH: Found = Found { is_waited_for: true, may_touch_user_memory: true };

/// CPUs 0 and 1 run a space.
fn two(policy: Policy) -> &'static World {
    let world = World::new(policy, 2);
    let space = world.space();
    world.map(space, USER);
    (0..2).for_each(|cpu| world.switch(cpu, space));
    world.touch(1, USER);
    world
}

/// What an NMI finds on CPU 1 while CPU 0 does `flush`.
fn found(world: &'static World, flush: impl FnOnce()) -> Option<Found> {
    let seen = Rc::new(Cell::new(None));
    let note = Rc::clone(&seen);
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(move |world| {
        let mut is_waited_for = false;
        world.cpu(0).missing().for_each(|_| is_waited_for = true);
        let may_touch_user_memory = world.cpu(1).is_running(world.at(0));
        note.set(note.get().or(Some(Found { is_waited_for, may_touch_user_memory })));
    }));
    flush();
    world.cpus[1].kept.nmi.take();
    assert!(world.cpu(1).is_running(world.at(0)), "what was owed is paid");
    seen.get()
}

#[test]
fn c_55_base_pages_of_the_running_space_are_acknowledged_before_the_flush_and_nothing_else_is() {
    let range = |pages, stride| {
        let world = two(EARLY);
        world.tlb.knobs().set_ceiling(4096);
        found(world, || world.cpu(0).flush_range(world.at(0), VirtAddr(0), pages, stride, Reason::RemovePte))
    };
    assert_eq!(range(1, Stride::Page4K), Some(BEFORE_ITS_FLUSH));
    assert_eq!(range(511, Stride::Page4K), Some(BEFORE_ITS_FLUSH));
    assert_eq!(range(512, Stride::Page4K), Some(AFTER_ITS_FLUSH), "a large page may be among them");
    assert_eq!(range(1, Stride::Page2M), Some(AFTER_ITS_FLUSH));
    let world = two(EARLY);
    assert_eq!(found(world, || world.free_table(0, Owner::Space(0), USER)), Some(AFTER_ITS_FLUSH));
    let world = two(EARLY);
    world.map_kernel(KERNEL);
    assert_eq!(found(world, || world.revoke(0, Owner::Kernel, &[KERNEL])), Some(AFTER_ITS_FLUSH));
    let world = two(Policy::DEFAULT);
    assert_eq!(found(world, || world.unmap(0, 0, &[USER])), Some(AFTER_ITS_FLUSH), "a policy that waits");
}

#[test]
fn c_54_a_cpu_that_was_stopped_before_its_flush_owes_nothing_when_it_is_back() {
    let world = two(EARLY);
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(|_| std::panic::resume_unwind(Box::new("stopped"))));
    let flush = || world.cpu(0).flush_range(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Reason::RemovePte);
    assert!(catch_unwind(AssertUnwindSafe(flush)).is_err());
    world.cpus[1].kept.nmi.take();
    world.cpus.iter().for_each(|core| core.irqs.set(true));
    assert!(!world.cpu(1).is_running(world.at(0)), "it has acknowledged, and not flushed");
    world.tlb.declare_stopped(CpuId(1));
    world.bring_up(1);
    world.switch(1, 0);
    assert!(world.cpu(1).is_running(world.at(0)));
}
