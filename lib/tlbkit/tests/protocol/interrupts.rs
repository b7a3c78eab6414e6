//! Whom an initiator interrupts when it asks every other CPU: all by one message while none of them has an interrupt on
//! its way, else exactly those that have none, one by one.

use tlbkit::Policy;

use crate::machine::{Delivery, Did, KERNEL, Owner, USER, World, interrupted};

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
    world.meanwhile.borrow_mut().push_back(Box::new(move |world| world.revoke(sender, Owner::Kernel, &[KERNEL])));
    world.unmap(first, space, &[USER]);
    assert_eq!(interrupted(&world.log(first)), [busy as u32]);
    assert!((0..cpus).all(|cpu| world.touch_in_kernel(cpu, KERNEL).is_none()));
    let log = world.log(sender);
    (interrupted(&log), log.contains(&Did::IpiToOthers))
}

/// [`sent_while_one_is_on_its_way`], for each of `places`: everybody is interrupted but the sender and the busy one.
fn all_but_the_busy_one(cpus: usize, places: &[[usize; 3]]) {
    for &[first, busy, sender] in places {
        let needed = (0..cpus).filter(|&cpu| cpu != busy && cpu != sender).map(|cpu| cpu as u32).collect();
        let sent = sent_while_one_is_on_its_way(cpus, [first, busy, sender]);
        assert_eq!(sent, (needed, false), "{cpus} CPUs, cpu{sender} asks while cpu{busy} is busy");
    }
}

#[test]
fn who_has_an_interrupt_on_its_way_gets_no_second_one_when_all_are_asked() {
    all_but_the_busy_one(5, &[[1, 0, 2], [0, 4, 2], [4, 2, 0], [3, 1, 4], [0, 3, 1], [0, 2, 1]]);
}

/// Without a top only what came with the sender's own word of the inbox is found.
#[test]
fn the_same_in_inboxes_of_several_words() {
    all_but_the_busy_one(200, &[[3, 0, 60], [70, 199, 65], [130, 65, 180]]);
}

#[test]
fn the_same_in_inboxes_with_a_top() {
    all_but_the_busy_one(520, &[[0, 519, 64], [519, 65, 0]]);
}
