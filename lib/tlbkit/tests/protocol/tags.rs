//! Tags: which slot a space gets, what a recycled one is worth, and when CR3 may be written without a flush.

use tlbkit::{Event, Pcid, Policy, Tags};

use crate::machine::{Did, MODERN, USER, World, cr3s};

fn policy(tags: Tags) -> Policy {
    Policy { tags, ..Policy::default() }
}

/// `cpu` switches to `space` and reports whether the load kept its entries, and the tag's number.
fn switch(world: &'static World, space: usize) -> (bool, u16) {
    world.forget_logs();
    world.switch(0, space);
    let log = world.log(0);
    let cr3 = *cr3s(&log).last().expect("a switch writes CR3");
    let event = if cr3.keeps() { Event::SwitchKept } else { Event::SwitchFlushed };
    assert!(log.contains(&Did::Event(event)));
    (cr3.keeps(), cr3.pcid().0)
}

fn world_with(tags: Tags, spaces: usize) -> &'static World {
    let world = World::new(policy(tags), 1);
    for space in 0..spaces {
        world.space();
        world.map(space, USER);
    }
    world
}

#[test]
fn inv_12_as_many_spaces_as_slots_are_kept_and_one_more_is_not() {
    for tags in (1..=15).flat_map(|n| [Tags::RoundRobin(n), Tags::LeastRecent(n)]) {
        let slots = policy(tags).asids();
        let world = world_with(tags, slots + 1);
        let first: Vec<_> = (0..slots).map(|space| switch(world, space)).collect();
        assert!(first.iter().all(|(kept, pcid)| !kept && *pcid != Pcid::KERNEL.0), "INV-8: new slots flush: {tags:?}");
        assert!((0..slots).all(|space| slots == 1 || switch(world, space).0), "all fit: {tags:?}");
        assert!(!switch(world, slots).0, "the one too many: {tags:?}");
        assert!(!switch(world, 0).0, "it took the first one's slot: {tags:?}");
    }
}

#[test]
fn least_recent_keeps_what_is_used_and_in_turn_does_not() {
    for (tags, kept) in [(Tags::LeastRecent(3), true), (Tags::RoundRobin(3), false)] {
        let world = world_with(tags, 4);
        for space in [0, 1, 2, 0, 3] {
            switch(world, space);
        }
        assert_eq!(switch(world, 0).0, kept, "{tags:?}");
    }
}

#[test]
fn inv_8_a_recycled_slot_never_shows_the_space_before() {
    for tags in [Tags::RoundRobin(1), Tags::RoundRobin(2), Tags::LeastRecent(2), Tags::Off] {
        let world = world_with(tags, 5);
        for space in [0, 1, 2, 3, 4, 0, 2, 1, 4, 3] {
            world.switch(0, space);
            assert!(world.touch(0, USER).is_some());
        }
    }
}

#[test]
fn inv_8_without_tags_cr3_is_the_plain_root() {
    let plain = tlbkit::Features { pcid: false, ..MODERN };
    for (tags, features) in [(Tags::Off, MODERN), (Tags::Off, plain), (Tags::RoundRobin(6), plain)] {
        let world = World::of(policy(tags), &[features]);
        let (a, b) = (world.space(), world.space());
        for space in [a, b, a, b] {
            assert_eq!(switch(world, space), (false, 0));
        }
        world.load_kernel(0);
        assert!(world.log(0).iter().all(|did| !matches!(did, Did::Cr3(cr3) if cr3.0 != cr3.root().0)));
    }
}

#[test]
fn inv_3_a_slot_that_fell_behind_is_flushed_and_an_id_is_not_reused() {
    let world = World::new(policy(Tags::RoundRobin(4)), 2);
    let (a, b) = (world.space(), world.space());
    world.map(a, USER);
    world.switch(0, a);
    assert!(world.touch(0, USER).is_some());
    world.switch(0, b);
    let before = world.at(a).generation();
    world.unmap(1, a, &[USER]);
    assert!(world.at(a).generation() > before, "INV-3: it rises");
    assert!(!switch(world, a).0, "INV-12: the slot is behind");
    assert_eq!(world.touch(0, USER), None);
    world.switch(0, b);
    assert!(switch(world, a).0, "it was brought up to date");
    assert!(world.tlb.fresh_id() > world.at(b).id() && world.at(b).id() > world.at(a).id());
}

#[test]
fn nothing_happens_when_the_loaded_space_is_switched_to() {
    let world = world_with(Tags::RoundRobin(4), 1);
    world.switch(0, 0);
    world.forget_logs();
    world.switch(0, 0);
    assert_eq!(world.log(0), []);
}

#[test]
#[should_panic(expected = "1 to 15 ASIDs")]
fn sixteen_slots_are_refused() {
    let _world = World::new(policy(Tags::RoundRobin(16)), 1);
}
