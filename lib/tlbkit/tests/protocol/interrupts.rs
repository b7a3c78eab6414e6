//! Whom an initiator interrupts when it asks every other CPU: all by one message while it finds none of them with an
//! interrupt on its way, else exactly those that have none, one by one.
//!
//! It finds such an interrupt where it looks anyhow: in its own word of the inbox, or in its own word on top where the
//! inbox has a top. One that goes with another word is not found. Then all are asked at once, and the busy one gets an
//! interrupt too many: that costs time, and nothing else.

use tlbkit::Policy;

use crate::machine::{Delivery, Did, KERNEL, Owner, USER, World, interrupted};

/// CPUs that a word of an inbox names, and words of an inbox without a top.
const PER_WORD: usize = if cfg!(narrow_sets) { 2 } else { 64 };
const WITHOUT_TOP: usize = if cfg!(narrow_sets) { 1 } else { 8 };

/// True if `sender` finds in an inbox the interrupt that goes with the hint of `first`.
fn finds(cpus: usize, sender: usize, first: usize) -> bool {
    let has_top = cpus.div_ceil(PER_WORD) > WITHOUT_TOP;
    let looked_at = if has_top { PER_WORD * PER_WORD } else { PER_WORD };
    sender / looked_at == first / looked_at
}

/// CPU `first` asks CPU `busy`, whose interrupt stays on its way. Meanwhile CPU `sender` asks everybody, and every
/// interrupt arrives when it waits: what it sent, the single interrupts and whether it sent one to all.
fn sent_while_one_is_on_its_way(cpus: usize, [first, busy, sender]: [usize; 3]) -> (Vec<u32>, bool) {
    let world = World::new(Policy::default(), cpus);
    let space = world.space();
    world.map(space, USER);
    world.map_kernel(KERNEL);
    for cpu in [first, busy] {
        world.switch(cpu, space);
        assert!(world.touch(cpu, USER).is_some());
    }
    for cpu in 0..cpus {
        assert!(world.touch_in_kernel(cpu, KERNEL).is_some());
    }
    world.forget_logs();
    world.delivery.set(Delivery::Queued);
    world.plan(move |world| world.revoke(sender, Owner::Kernel, &[KERNEL]));
    world.unmap(first, space, &[USER]);
    assert_eq!(interrupted(&world.log(first)), [busy as u32]);
    assert!((0..cpus).all(|cpu| world.touch_in_kernel(cpu, KERNEL).is_none()));
    let log = world.log(sender);
    (interrupted(&log), log.contains(&Did::IpiToOthers))
}

/// Whether the busy one is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Busy {
    Found,
    Unseen,
}

/// [`sent_while_one_is_on_its_way`], for each of `places`: where the busy one is found, all others but the sender are
/// interrupted one by one, else all by one message. `wide` says which of both each place shows where words are wide.
fn all_but_the_busy_one(cpus: usize, places: &[[usize; 3]], wide: Busy) {
    for &[first, busy, sender] in places {
        let is_found = finds(cpus, sender, first);
        let is_as_said = is_found == (wide == Busy::Found);
        assert!(is_as_said || cfg!(narrow_sets), "{cpus} CPUs: no place for cpu{first} and cpu{sender}");
        let needed = (0..cpus).filter(|&cpu| is_found && cpu != busy && cpu != sender).map(|cpu| cpu as u32).collect();
        let sent = sent_while_one_is_on_its_way(cpus, [first, busy, sender]);
        assert_eq!(sent, (needed, !is_found), "{cpus} CPUs, cpu{sender} asks while cpu{busy} is busy");
    }
}

/// Where words are narrow, these five CPUs have an inbox of three words and a top of two.
#[test]
fn who_has_an_interrupt_on_its_way_gets_no_second_one_when_all_are_asked() {
    all_but_the_busy_one(5, &[[1, 0, 2], [0, 4, 2], [4, 2, 0], [3, 1, 4], [0, 3, 1], [0, 2, 1]], Busy::Found);
}

/// Without a top only what came with the sender's own word of the inbox is found.
#[test]
fn the_same_in_inboxes_of_several_words() {
    all_but_the_busy_one(200, &[[3, 0, 60], [70, 199, 65], [130, 65, 180], [2, 7, 3]], Busy::Found);
    all_but_the_busy_one(200, &[[3, 0, 64], [130, 65, 63]], Busy::Unseen);
}

#[test]
fn the_same_in_inboxes_with_a_top() {
    all_but_the_busy_one(520, &[[0, 519, 64], [519, 65, 0], [0, 519, 2], [516, 1, 519]], Busy::Found);
}
