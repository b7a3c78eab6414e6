//! Two halves: the user half is flushed at once or owed, and what is owed is paid before the program goes on (INV-10).

use tlbkit::{
    Batching, Features, History, Invpcid, Isolation, Policy, Reason, Scope, Stride, Tags, UserFlush, VirtAddr,
};

use crate::machine::{Did, MODERN, Owner, USER, World, cr3s, invlpgs};

const HOWS: [UserFlush; 2] = [UserFlush::Invpcid, UserFlush::DeferredCr3];

fn policy(user_flush: UserFlush) -> Policy {
    Policy { isolation: Isolation::On, user_flush, tags: Tags::RoundRobin(2), ..Policy::default() }
}

/// CPU 0 runs space 0 of `spaces`, with its page cached in both halves.
fn warm_on(policy: Policy, features: Features) -> &'static World {
    let world = World::of(policy, &[features, features]);
    for _ in 0..4 {
        let space = world.space();
        world.map(space, USER);
        world.map(space, USER + 0x1000);
    }
    world.switch(0, 0);
    warm(world);
    world
}

fn warm(world: &'static World) {
    for va in [USER, USER + 0x1000] {
        world.touch(0, va);
        world.touch_in_kernel(0, va);
    }
    world.forget_logs();
}

fn user_pages(log: &[Did]) -> usize {
    log.iter().filter(|did| matches!(did, Did::Invpcid(Invpcid::Address(..)))).count()
}

/// True if the way back to user mode flushes.
fn exit_flushes(world: &'static World) -> bool {
    world.enter_kernel(0);
    world.forget_logs();
    world.exit_to_user(0);
    !cr3s(&world.log(0))[0].keeps()
}

#[test]
fn inv_10_both_halves_forget_a_page_each_way() {
    for (how, expected) in HOWS.into_iter().zip([1, 0]) {
        let world = warm_on(policy(how), MODERN);
        world.unmap(1, 0, &[USER]);
        let log = world.log(0);
        assert_eq!((invlpgs(&log), user_pages(&log)), (vec![USER], expected), "{how:?}");
        assert_eq!((world.touch(0, USER), world.touch_in_kernel(0, USER)), (None, None));
    }
}

/// What the first flush leaves on record makes the second one the next.
#[test]
fn one_page_after_the_other_is_flushed_as_a_page() {
    let world = warm_on(policy(HOWS[0]), MODERN);
    for va in [USER, USER + 0x1000] {
        world.forget_logs();
        world.unmap(1, 0, &[va]);
        assert_eq!(invlpgs(&world.log(0)), [va]);
    }
}

#[test]
fn inv_10_invpcid_owes_nothing_and_deferring_owes_once() {
    for how in HOWS {
        let world = warm_on(policy(how), MODERN);
        assert!(!exit_flushes(world), "nothing is owed yet");
        world.unmap(0, 0, &[USER]);
        assert_eq!(exit_flushes(world), how == UserFlush::DeferredCr3, "{how:?}");
        assert!(!exit_flushes(world), "paid");
    }
}

#[test]
fn inv_10_the_way_can_be_changed_between_two_flushes() {
    let world = warm_on(policy(UserFlush::DeferredCr3), MODERN);
    world.unmap(0, 0, &[USER]);
    world.tlb.knobs().set_user_flush(UserFlush::Invpcid);
    world.unmap(0, 0, &[USER + 0x1000]);
    assert_eq!(user_pages(&world.log(0)), 0, "a whole flush is owed anyway");
    assert!(exit_flushes(world));
    assert_eq!((world.touch(0, USER), world.touch(0, USER + 0x1000)), (None, None));
    world.map(0, USER);
    warm(world);
    world.enter_kernel(0);
    world.unmap(0, 0, &[USER]);
    assert_eq!(user_pages(&world.log(0)), 1, "and now page by page");
    assert_eq!(world.touch(0, USER), None);
}

#[test]
fn inv_10_what_is_owed_survives_any_switches_in_between() {
    for how in HOWS {
        for detour in [&[1][..], &[1, 2], &[1, 2, 3], &[]] {
            let world = warm_on(policy(how), MODERN);
            world.unmap(0, 0, &[USER]);
            for &space in detour {
                world.switch(0, space);
                assert!(world.touch(0, USER).is_some(), "the others are not harmed");
            }
            world.lazy(0);
            world.switch(0, 0);
            assert_eq!((world.touch(0, USER), world.touch_in_kernel(0, USER)), (None, None), "{how:?} {detour:?}");
        }
    }
}

#[test]
fn inv_10_a_switch_or_a_return_from_lazy_that_flushes_owes_the_user_half() {
    for how in HOWS {
        let world = warm_on(policy(how), MODERN);
        world.lazy(0);
        world.unmap(1, 0, &[USER]);
        world.switch(0, 0);
        assert_eq!(world.touch(0, USER), None, "from lazy mode, {how:?}");
        world.switch(0, 1);
        world.unmap(1, 0, &[USER + 0x1000]);
        world.switch(0, 0);
        assert_eq!(world.touch(0, USER + 0x1000), None, "by a switch, {how:?}");
    }
}

#[test]
fn inv_8_a_recycled_tag_has_a_clean_user_half() {
    for how in HOWS {
        let world = warm_on(policy(how), MODERN);
        for space in [1, 2, 3, 0, 2, 1] {
            world.switch(0, space);
            assert!(world.touch(0, USER).is_some());
        }
    }
}

#[test]
fn inv_10_a_freed_table_owes_the_whole_user_half() {
    // INVPCID for an address drops the path of that address alone (C-27).
    let world = warm_on(policy(UserFlush::Invpcid), MODERN);
    world.map(0, USER + (1 << 21));
    world.touch(0, USER + (1 << 21));
    world.enter_kernel(0);
    let mut gather = world.gather(Owner::Space(0));
    let table = world.memory.borrow_mut().unhook_table(Owner::Space(0), USER);
    world.unhook(0, &mut gather, Owner::Space(0), &[USER + 0x1000, USER]);
    gather.unmap_table(&world.cpu(0), VirtAddr(USER), 0, table.unwrap());
    world.finish(0, gather);
    assert!(exit_flushes(world));
    assert_eq!(world.touch(0, USER), None);
}

#[test]
fn c_31_a_range_that_runs_out_of_the_user_half_owes_it_whole() {
    const LAST: u64 = (1 << 47) - 0x1000;
    let flush = |va, pages| {
        let world = warm_on(policy(UserFlush::Invpcid), MODERN);
        world.map(0, LAST);
        world.touch(0, LAST);
        world.enter_kernel(0);
        world.forget_logs();
        world.cpu(0).flush_range(world.at(0), VirtAddr(va), pages, Stride::Page4K, Reason::WriteProtect);
        let log = world.log(0);
        (invlpgs(&log).len(), user_pages(&log), exit_flushes(world))
    };
    assert_eq!(flush(LAST, 1), (1, 1, false), "the last page is one like any other");
    assert_eq!(flush(LAST, 2), (2, 0, true));
    assert_eq!(flush(LAST + 0x1000, 1), (1, 0, true));
    assert_eq!(flush(!0xfff, 2), (2, 0, true));
}

#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn c_31_a_packet_with_an_address_outside_the_user_half_owes_it_whole() {
    let world = warm_on(
        Policy { history: History { batching: Batching::Packet(6), ..History::NONE }, ..policy(UserFlush::Invpcid) },
        MODERN,
    );
    let mut gather = world.gather(Owner::Space(0));
    world.unhook(0, &mut gather, Owner::Space(0), &[USER]);
    gather.page(&world.cpu(0), VirtAddr(1 << 47), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
    world.finish(0, gather);
    assert_eq!(user_pages(&world.log(0)), 0);
    assert_eq!(world.touch(0, USER), None);
}

#[test]
fn inv_10_a_flush_of_everything_covers_both_halves() {
    for how in HOWS {
        let world = warm_on(policy(how), MODERN);
        world.tlb.knobs().set_ceiling(0);
        world.unmap(1, 0, &[USER]);
        assert_eq!((world.touch(0, USER), world.touch_in_kernel(0, USER)), (None, None));
    }
}

#[test]
fn cpus_without_invpcid_or_tags_defer() {
    let features = [Features { invpcid: false, ..MODERN }, Features { pcid: false, ..MODERN }, Features::default()];
    for features in features {
        let world = warm_on(policy(UserFlush::Invpcid), features);
        world.unmap(1, 0, &[USER]);
        assert_eq!(user_pages(&world.log(0)), 0);
        assert_eq!((world.touch(0, USER), world.touch_in_kernel(0, USER)), (None, None));
    }
}

#[test]
fn without_isolation_the_borders_cost_nothing() {
    let world = warm_on(Policy::default(), MODERN);
    world.enter_kernel(0);
    world.exit_to_user(0);
    assert_eq!(cr3s(&world.log(0)), []);
}
