//! A flush of this CPU alone: for entries that allow more than it remembers. It tells nobody and promises nothing of
//! others.

use std::cell::Cell;
use std::rc::Rc;

use tlbkit::{Cr3, Features, Invpcid, Isolation, OthersMustFlush, Policy, Reason, Stride, Tables, UserFlush, VirtAddr};

use crate::machine::{Did, KERNEL, MODERN, Owner, USER, World, cr3s, interrupted, invlpgs};

const OLD: Features = Features { pcid: true, invpcid: false };

/// Two CPUs that run one space; each holds its page, and in memory there is a newer entry.
fn outdated(policy: Policy, features: Features) -> (&'static World, usize) {
    let world = World::of(policy, &[features, features]);
    let space = world.space();
    world.map(space, USER);
    for cpu in 0..2 {
        world.switch(cpu, space);
        assert!(world.touch(cpu, USER).is_some() && world.touch_in_kernel(cpu, USER).is_some());
    }
    // Widened, as far as this machine knows of permissions: another entry, and nobody may be harmed by the one before.
    let before = world.memory.borrow_mut().unhook(Owner::Space(space), USER).unwrap();
    world.map(space, USER);
    world.enter_kernel(0);
    world.forget_logs();
    (world, before.stamp)
}

#[test]
fn one_cpu_forgets_and_nobody_else_hears_of_it() {
    let (world, before) = outdated(Policy::default(), MODERN);
    let generation = world.at(0).generation();
    // With interrupts off, as in a fault handler: nothing is waited for.
    world.quiet(0, |cpu, _irqs| cpu.flush_this_cpu(VirtAddr(USER), 1, Stride::Page4K));
    let log = world.log(0);
    assert_eq!((invlpgs(&log), interrupted(&log)), (vec![USER], vec![]));
    assert_eq!(world.at(0).generation(), generation, "nothing was revoked");
    assert_ne!(world.touch(0, USER), Some(before));
    assert_eq!(world.touch(1, USER), Some(before), "no promise was made of another CPU");
}

#[test]
fn both_halves_forget_by_invpcid_or_on_the_way_out() {
    for (user_flush, features) in
        [(UserFlush::Invpcid, MODERN), (UserFlush::DeferredCr3, MODERN), (UserFlush::Invpcid, OLD)]
    {
        let policy = Policy { isolation: Isolation::On, user_flush, ..Policy::default() };
        let (world, before) = outdated(policy, features);
        world.cpu(0).flush_this_cpu(VirtAddr(USER), 1, Stride::Page4K);
        let by_page = world.log(0).iter().any(|did| matches!(did, Did::Invpcid(Invpcid::Address(..))));
        assert_eq!(by_page, user_flush == UserFlush::Invpcid && features.invpcid, "else it is owed");
        assert_ne!(world.touch_in_kernel(0, USER), Some(before), "{user_flush:?}");
        assert_ne!(world.touch(0, USER), Some(before), "{user_flush:?}");
    }
}

fn flush_alone(world: &'static World, space: usize, tables: Tables) -> Result<(), OthersMustFlush> {
    world.quiet(0, |cpu, _irqs| cpu.flush_range_alone(world.at(space), VirtAddr(USER), 1, Stride::Page4K, tables))
}

/// A lazy CPU may walk what is freed, and with isolation the user half forgets whole paths (C-27).
#[test]
fn a_flush_that_may_tell_nobody_knows_of_freed_tables() {
    let policy = Policy { isolation: Isolation::On, user_flush: UserFlush::Invpcid, ..Policy::default() };
    let (world, before) = outdated(policy, MODERN);
    world.lazy(1);
    assert_eq!(flush_alone(world, 0, Tables::Kept), Ok(()));
    assert!(world.log(0).iter().any(|did| matches!(did, Did::Invpcid(Invpcid::Address(..)))), "one page");
    world.forget_logs();
    assert_eq!(flush_alone(world, 0, Tables::Freed), Err(OthersMustFlush));
    assert!(
        !world.log(0).iter().any(|did| matches!(did, Did::Invpcid(Invpcid::Address(..)))),
        "the half is owed whole"
    );
    assert_ne!(world.touch(0, USER), Some(before));
}

/// With interrupts off: right where no other CPU uses the space, and refused where one does.
#[test]
fn a_flush_that_may_tell_nobody_says_whether_somebody_must_be_told() {
    let (world, before) = outdated(Policy::default(), MODERN);
    let alone = |space| flush_alone(world, space, Tables::Kept);
    assert_eq!(alone(0), Err(OthersMustFlush));
    assert_eq!(interrupted(&world.log(0)), vec![]);
    assert_ne!(world.touch(0, USER), Some(before));
    assert_eq!(world.touch(1, USER), Some(before), "it was not told");
    let other = world.space();
    world.switch(1, other);
    assert_eq!(alone(0), Ok(()), "it runs something else");
    world.switch(1, 0);
    assert_ne!(world.touch(1, USER), Some(before), "it finds the generation");
    assert_eq!(alone(other), Ok(()), "a space that no CPU runs");
}

/// A CPU that used the space before is stopped just before it writes CR3, on its way from one space to another.
#[test]
fn a_cpu_between_two_spaces_counts_as_one_that_must_be_told() {
    for goes_to_it in [false, true] {
        let (world, before) = outdated(Policy::default(), MODERN);
        let [second, third] = [world.space(), world.space()];
        world.switch(1, second);
        let alone = move || flush_alone(world, 0, Tables::Kept);
        let answer = Rc::new(Cell::new(None));
        let seen = Rc::clone(&answer);
        *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(move |_| seen.set(Some(alone()))));
        world.switch(1, if goes_to_it { 0 } else { third });
        *world.cpus[1].kept.nmi.borrow_mut() = None;
        assert_eq!(answer.get(), Some(Err(OthersMustFlush)), "where it goes cannot be seen");
        assert_eq!(interrupted(&world.log(0)), vec![]);
        assert_ne!(world.touch(0, USER), Some(before), "this one has flushed");
        if goes_to_it {
            // It had read the generation: it must be told indeed.
            assert_eq!(world.touch(1, USER), Some(before));
            assert_eq!(alone(), Err(OthersMustFlush));
            world.cpu(0).flush_range(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Reason::WriteProtect);
        } else {
            // Whoever knew that it could not go there was right to take the answer for "done".
            assert_eq!(alone(), Ok(()));
            world.switch(1, 0);
        }
        assert_ne!(world.touch(1, USER), Some(before));
    }
}

#[test]
fn a_long_range_goes_as_everything() {
    let (world, before) = outdated(Policy::default(), MODERN);
    world.cpu(0).flush_this_cpu(VirtAddr(USER), u32::MAX, Stride::Page4K);
    assert_eq!(world.log(0), [Did::Invpcid(Invpcid::AllAndGlobals)]);
    assert_ne!(world.touch(0, USER), Some(before));
}

#[test]
fn kernel_addresses_go_whatever_is_loaded() {
    let world = World::new(Policy::default(), 1);
    let before = world.map_kernel(KERNEL);
    assert_eq!(world.touch_in_kernel(0, KERNEL), Some(before));
    let _never_reused = world.memory.borrow_mut().unhook(Owner::Kernel, KERNEL);
    world.map_kernel(KERNEL);
    world.cpu(0).flush_this_cpu(VirtAddr(KERNEL), 1, Stride::Page4K);
    assert_ne!(world.touch_in_kernel(0, KERNEL), Some(before));
}

#[test]
fn c_08_kernel_addresses_go_from_every_tag_of_one_cpu() {
    for isolation in [Isolation::Off, Isolation::On] {
        let (world, _) = outdated(Policy { isolation, ..Policy::default() }, MODERN);
        let before = world.map_kernel(KERNEL);
        let other = world.space();
        for space in [0, other] {
            world.switch(0, space);
            world.enter_kernel(0);
            assert_eq!(world.touch_in_kernel(0, KERNEL), Some(before));
        }
        let _never_reused = world.memory.borrow_mut().unhook(Owner::Kernel, KERNEL);
        world.map_kernel(KERNEL);
        world.forget_logs();
        world.cpu(0).flush_kernel_on_this_cpu(VirtAddr(KERNEL), 1, Stride::Page4K);
        assert_eq!(interrupted(&world.log(0)), []);
        for space in [other, 0] {
            world.switch(0, space);
            assert_ne!(world.touch_in_kernel(0, KERNEL), Some(before), "{isolation:?}, space {space}");
        }
    }
}

#[test]
fn inv_10_what_is_loaded_on_one_cpu_goes_from_both_halves() {
    for isolation in [Isolation::Off, Isolation::On] {
        let (world, before) = outdated(Policy { isolation, ..Policy::default() }, MODERN);
        world.cpu(0).flush_loaded_on_this_cpu();
        assert_eq!(interrupted(&world.log(0)), []);
        assert_ne!(world.touch_in_kernel(0, USER), Some(before), "{isolation:?}");
        assert_ne!(world.touch(0, USER), Some(before), "{isolation:?}");
        assert_eq!(world.touch(1, USER), Some(before), "no promise was made of another CPU");
    }
}

#[test]
fn what_is_loaded_is_said_and_flushed_under_its_own_tag() {
    let (world, _) = outdated(Policy::default(), MODERN);
    for enter in [World::enter_kernel, World::load_kernel] {
        enter(world, 0);
        let loaded = world.cpus[0].cr3.get();
        let loaded = Cr3::flushing(loaded.root(), loaded.pcid());
        assert_eq!(world.quiet(0, |cpu, irqs| cpu.loaded(irqs)), loaded);
        world.forget_logs();
        world.cpu(0).flush_loaded_on_this_cpu();
        assert_eq!(cr3s(&world.log(0)), [loaded]);
    }
}

#[test]
fn everything_that_one_cpu_holds_goes_at_once() {
    let (world, before) = outdated(Policy::default(), MODERN);
    world.cpu(0).flush_all_on_this_cpu();
    assert_eq!(world.log(0), [Did::Invpcid(Invpcid::AllAndGlobals)]);
    assert_ne!(world.touch(0, USER), Some(before));
    assert_eq!(world.touch(1, USER), Some(before));
}
