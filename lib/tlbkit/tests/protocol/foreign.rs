//! A foreign space loaded for a moment: what it sees, and what is loaded afterwards.

use tlbkit::Policy;

use crate::machine::{KERNEL_ROOT, USER, World, interrupted, root_of};

fn world() -> (&'static World, usize, usize) {
    let world = World::new(Policy::default(), 2);
    let (own, foreign) = (world.space(), world.space());
    world.map(own, USER);
    world.map(foreign, USER);
    (world, own, foreign)
}

fn look(world: &'static World, cpu: usize, space: usize) -> Option<usize> {
    world.quiet(cpu, |c, irqs| {
        c.with_space(world.at(space), irqs, || {
            assert!(c.is_running(world.at(space)), "it can be told what is revoked");
            world.touch_in_kernel(cpu, USER)
        })
    })
}

#[test]
fn a_foreign_space_is_seen_and_the_own_comes_back() {
    let (world, own, foreign) = world();
    world.switch(0, own);
    let mine = world.touch(0, USER);
    let theirs = look(world, 0, foreign);
    assert!(theirs.is_some() && theirs != mine);
    assert_eq!(world.cpus[0].cr3.get().root(), root_of(own));
    assert_eq!(world.touch(0, USER), mine);
    assert_eq!(look(world, 0, own), mine, "the own space needs no switch");
}

#[test]
fn inv_6_what_was_revoked_meanwhile_is_not_seen_at_the_next_look() {
    let (world, own, foreign) = world();
    world.switch(0, own);
    assert!(look(world, 0, foreign).is_some());
    world.unmap(1, foreign, &[USER]);
    assert!(interrupted(&world.log(1)).is_empty());
    assert_eq!(look(world, 0, foreign), None);
}

#[test]
fn a_space_that_was_held_lazily_is_not_loaded_again() {
    let (world, own, foreign) = world();
    world.switch(0, own);
    world.lazy(0);
    assert!(look(world, 0, foreign).is_some());
    assert_eq!(world.cpus[0].cr3.get().root(), KERNEL_ROOT);
    world.load_kernel(0);
    assert!(look(world, 0, foreign).is_some());
    assert_eq!(world.cpus[0].cr3.get().root(), KERNEL_ROOT);
}

#[test]
fn c_24_a_lazily_held_space_is_looked_at_again_before_it_is_used() {
    let (world, own, _) = world();
    world.switch(0, own);
    assert!(world.touch_in_kernel(0, USER).is_some());
    world.lazy(0);
    world.unmap(1, own, &[USER]);
    let seen = world.quiet(0, |c, irqs| c.with_space(world.at(own), irqs, || world.touch_in_kernel(0, USER)));
    assert_eq!(seen, None);
}
