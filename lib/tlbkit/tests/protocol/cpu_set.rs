//! The set of CPUs: never too few, exact or trimmed as the policy says, and unwritten where nothing changes.

use tlbkit::sync::Ordering;
use tlbkit::{CpuId, CpuSetUpkeep, History, KernelSet, Lazy, LazyReferences, Policy, Tags};

use crate::machine::{Owner, REFERENCES, USER, World, interrupted};

fn members(world: &World, space: usize) -> Vec<u32> {
    let set = world.at(space).cpus();
    (0..world.cpus.len() as u32).filter(|&cpu| set.contains(CpuId(cpu), Ordering::Relaxed)).collect()
}

fn policy(cpu_set: CpuSetUpkeep) -> Policy {
    Policy { cpu_set, tags: Tags::LeastRecent(6), ..Policy::default() }
}

#[test]
fn inv_2_an_exact_set_names_those_whose_cr3_points_at_the_space() {
    let shot_down = Policy { lazy_references: LazyReferences::ShotDown, ..policy(CpuSetUpkeep::Exact) };
    let world = World::new(shot_down, 3);
    let (a, b) = (world.space(), world.space());
    world.switch(0, a);
    world.switch(1, a);
    world.switch(2, b);
    assert_eq!((members(world, a), members(world, b)), (vec![0, 1], vec![2]));
    world.switch(1, b);
    world.lazy(0);
    assert_eq!((members(world, a), members(world, b)), (vec![0], vec![1, 2]), "a lazy CPU is still in it");
    world.load_kernel(0);
    world.switch(1, a);
    assert_eq!((members(world, a), members(world, b)), (vec![1], vec![2]), "it joins at each switch");
}

/// A space that is left lazily may be dying, and gone when the switch is over.
#[test]
fn c_07_an_exact_set_keeps_whom_it_was_lazy_where_the_end_is_awaited() {
    let world = World::new(policy(CpuSetUpkeep::Exact), 2);
    let a = world.space();
    world.switch(1, a);
    world.lazy(1);
    world.load_kernel(1);
    assert_eq!(members(world, a), [1]);
    world.switch(1, a);
    world.switch(1, world.space());
    assert_eq!(members(world, a), [0; 0], "it has run the space again");
}

#[test]
fn c_07_a_trimmed_set_keeps_its_members_until_their_turn() {
    let world = World::new(policy(CpuSetUpkeep::Trimmed { every: 4 }), 3);
    let (a, b) = (world.space(), world.space());
    for cpu in 0..3 {
        world.switch(cpu, a);
    }
    world.switch(1, b);
    world.switch(2, b);
    world.forget_logs();
    let generation = |world: &World| world.at(a).generation().number();
    while generation(world) < 4 {
        assert_eq!((members(world, a), interrupted(&world.log(0))), (vec![0, 1, 2], vec![]));
        world.map(a, USER);
        world.unmap(0, a, &[USER]);
    }
    assert_eq!(members(world, a), [0], "both left by their own hand");
    world.map(a, USER);
    world.switch(1, a);
    assert_eq!(members(world, a), [0, 1], "the slot went with the bit, so it joins again");
    assert!(world.touch(1, USER).is_some());
    world.unmap(0, a, &[USER]);
    assert_eq!(world.touch(1, USER), None);
}

#[test]
fn inv_3_a_trimmed_cpu_that_comes_back_is_told_again() {
    let world = World::new(policy(CpuSetUpkeep::Trimmed { every: 1 }), 2);
    let (a, b) = (world.space(), world.space());
    world.map(a, USER);
    for _ in 0..3 {
        world.map(a, USER + 0x1000);
        world.switch(1, a);
        assert!(world.touch(1, USER).is_some() && world.touch(1, USER + 0x1000).is_some());
        world.switch(1, b);
        world.unmap(0, a, &[USER + 0x1000]);
        assert_eq!(members(world, a), []);
        world.switch(1, a);
        assert_eq!(members(world, a), [1]);
        assert_eq!(world.touch(1, USER + 0x1000), None);
        world.switch(1, b);
    }
}

#[test]
fn a_set_that_is_never_trimmed_only_grows() {
    let world = World::new(policy(CpuSetUpkeep::Trimmed { every: 0 }), 2);
    let (a, b) = (world.space(), world.space());
    world.switch(1, a);
    world.switch(1, b);
    for _ in 0..2048 {
        world.map(a, USER);
        world.unmap(0, a, &[USER]);
    }
    assert_eq!(members(world, a), [1]);
}

#[test]
fn a_switch_between_two_known_spaces_writes_nothing_shared() {
    let world = World::new(policy(CpuSetUpkeep::Trimmed { every: 1024 }), 2);
    let (a, b) = (world.space(), world.space());
    world.switch(0, a);
    world.switch(0, b);
    // A bit that the protocol has no reason to look at disappears if the words are written beyond their bit; a bit
    // of this CPU's own that was taken away comes back if the set is joined again.
    for space in [a, b] {
        world.at(space).cpus().remove(CpuId(0), Ordering::Relaxed);
    }
    let before = [a, b].map(|space| world.at(space).generation());
    for space in [a, b, a, b] {
        world.switch(0, space);
    }
    assert_eq!([a, b].map(|space| members(world, space)), [vec![], vec![]]);
    assert_eq!([a, b].map(|space| world.at(space).generation()), before);
}

#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn the_kernels_own_set_is_written_only_on_request() {
    for (kernel_set, expected) in [(KernelSet::Written, true), (KernelSet::Unwritten, false)] {
        let world = World::new(
            Policy { history: History { kernel_set, ..History::NONE }, lazy: Lazy::Off, ..Policy::default() },
            1,
        );
        let a = world.space();
        let is_member = || world.tlb.kernel_set().contains(CpuId(0), Ordering::Relaxed);
        world.switch(0, a);
        assert!(!is_member());
        world.lazy(0);
        assert_eq!(is_member(), expected, "{kernel_set:?}");
        world.switch(0, a);
        assert!(!is_member());
    }
}

#[test]
fn inv_5_interrupted_once_a_lazy_cpu_leaves_the_set() {
    for &lazy_references in REFERENCES.iter().filter(|&&one| one != LazyReferences::Awaited) {
        let exact = policy(CpuSetUpkeep::Exact);
        let world = World::new(Policy { lazy: Lazy::InterruptOnce, lazy_references, ..exact }, 2);
        let a = world.space();
        world.switch(1, a);
        world.lazy(1);
        world.forget_logs();
        for expected in [vec![1], vec![]] {
            world.map(a, USER);
            world.unmap(0, a, &[USER]);
            assert_eq!((interrupted(&world.log(0)), members(world, a)), (expected, vec![]));
        }
    }
}

#[test]
fn c_07_freed_tables_trim_where_the_policy_says_so() {
    for (upkeep, is_left) in
        [(CpuSetUpkeep::TrimmedWithTables { every: 0 }, true), (CpuSetUpkeep::Trimmed { every: 0 }, false)]
    {
        let world = World::new(policy(upkeep), 2);
        let (space, other) = (world.space(), world.space());
        world.map(space, USER);
        world.switch(1, space);
        world.switch(1, other);
        world.switch(0, space);
        world.free_table(0, Owner::Space(space), USER);
        assert_eq!(members(world, space), if is_left { vec![0] } else { vec![0, 1] });
    }
}

#[test]
#[should_panic(expected = "neither 0 nor a power of two")]
fn three_generations_between_trims_are_refused() {
    let _world = World::new(policy(CpuSetUpkeep::TrimmedWithTables { every: 3 }), 1);
}
