//! Generations: requests that arrive in another order than they were made, and requests that arrive too late.

use tlbkit::{Batching, Compare, CpuId, History, Policy, RangeRule, Reason, Scope, Stride, VirtAddr};

use crate::machine::{Delivery, Did, KERNEL, Owner, USER, World, cr3s, invlpgs};

fn policy() -> Policy {
    Policy { range: RangeRule::Ceiling { pages: 33, compare: Compare::Above }, ..Policy::default() }
}

/// CPU 1, then CPU 0 flush the space that CPU 2 runs. One interrupt finds both requests, and CPU 2 carries them out in
/// the order of their senders: the newer first.
fn reversed(first: impl FnOnce(&'static World) + 'static, second: impl FnOnce(&'static World) + 'static) -> Vec<Did> {
    let world = World::new(policy(), 3);
    let space = world.space();
    for page in 0..64 {
        world.map(space, USER + page * 4096);
    }
    world.map_kernel(KERNEL);
    world.switch(2, space);
    for page in 0..64 {
        world.touch(2, USER + page * 4096);
    }
    world.touch_in_kernel(2, KERNEL);
    world.delivery.set(Delivery::Queued);
    world.forget_logs();
    world.plan(second);
    first(world);
    world.use_all_pages(2);
    world.log(2)
}

fn pages(from: u64, count: u64) -> Vec<u64> {
    (from..from + count).map(|page| USER + page * 4096).collect()
}

#[test]
fn inv_4_a_page_that_overtakes_a_full_flush_flushes_everything() {
    let log = reversed(|w| w.unmap(1, 0, &pages(0, 40)), |w| w.unmap(0, 0, &pages(50, 1)));
    assert_eq!(invlpgs(&log), [], "the page alone would have hidden the full flush");
    assert!(cr3s(&log).iter().any(|cr3| !cr3.keeps()));
}

#[test]
fn inv_4_a_page_that_overtakes_a_page_flushes_everything_once() {
    let log = reversed(|w| w.unmap(1, 0, &pages(3, 1)), |w| w.unmap(0, 0, &pages(50, 1)));
    assert_eq!(invlpgs(&log), []);
    assert_eq!(cr3s(&log).iter().filter(|cr3| !cr3.keeps()).count(), 1, "the late one finds nothing to do");
    assert!(log.contains(&Did::Event(tlbkit::Event::AlreadyCurrent)));
}

#[test]
fn inv_11_a_global_flush_that_is_overtaken_keeps_its_scope() {
    reversed(
        |w| {
            let mut gather = w.gather(Owner::Space(0));
            w.unhook(1, &mut gather, Owner::Kernel, &[KERNEL]);
            w.finish(1, gather);
        },
        |w| w.unmap(0, 0, &pages(50, 1)),
    );
}

/// CPU 1 runs a space and holds four of its pages.
fn four_pages_in_use() -> (&'static World, usize) {
    let world = World::new(policy(), 2);
    let space = world.space();
    for va in pages(0, 4) {
        world.map(space, va);
    }
    world.switch(1, space);
    for va in pages(0, 4) {
        world.touch(1, va);
    }
    (world, space)
}

#[test]
fn inv_4_in_order_each_goes_by_its_page() {
    let (world, space) = four_pages_in_use();
    world.forget_logs();
    for va in pages(0, 3) {
        world.unmap(0, space, &[va]);
    }
    let log = world.log(1);
    assert_eq!(invlpgs(&log), pages(0, 3));
    assert_eq!(cr3s(&log), []);
    assert_eq!(world.touch(1, USER), None);
}

#[test]
fn c_11_a_slot_that_missed_two_generations_rises_only_with_its_flush() {
    // CPU 1 is lazy and skipped by both flushes; when it runs again it must not have missed them.
    let (world, space) = four_pages_in_use();
    world.lazy(1);
    world.unmap(0, space, &pages(0, 1));
    world.unmap(0, space, &pages(1, 1));
    world.switch(1, space);
    assert_eq!(world.touch(1, USER), None);
    world.forget_logs();
    world.unmap(0, space, &pages(2, 1));
    assert_eq!(invlpgs(&world.log(1)), pages(2, 1), "it is current again");
}

#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn a_packet_is_answered_by_its_list() {
    let world =
        World::new(Policy { history: History { batching: Batching::Packet(6), ..History::NONE }, ..policy() }, 2);
    let space = world.space();
    let vas = [USER, USER + 0x9000, USER + 0x40_0000];
    for va in vas {
        world.map(space, va);
    }
    world.switch(1, space);
    for va in vas {
        world.touch(1, va);
    }
    world.forget_logs();
    world.unmap(0, space, &vas);
    assert_eq!(invlpgs(&world.log(1)), vas);
}

#[test]
fn c_63_an_interrupt_that_nobody_asked_for_is_harmless() {
    let world = World::new(policy(), 2);
    let space = world.space();
    world.map(space, USER);
    world.switch(1, space);
    world.forget_logs();
    world.apics.send(CpuId(1));
    world.deliver(1);
    assert_eq!(world.log(1), []);
    let mut late = Vec::new();
    world.cpu(0).missing().for_each(|cpu| late.push(cpu));
    assert_eq!(late, []);
    let mut gather = world.gather(Owner::Space(space));
    gather.page(&world.cpu(0), VirtAddr(USER), Stride::Page4K, Scope::NonGlobal, Reason::Migrate);
    world.finish(0, gather);
    assert!(world.touch(1, USER).is_some());
}
