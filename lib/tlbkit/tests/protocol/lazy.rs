//! Lazy mode: who is left alone, who is not, what coming back costs, and when a dead space may be freed.

use tlbkit::TlbBatch;
use tlbkit::sync::Ordering;
use tlbkit::{
    CpuId, CpuSetUpkeep, Destroyed, Event, Features, History, KernelSet, Lazy, LazyReferences, Policy, Reason,
};

use crate::machine::{Did, Fate, HAS_HISTORY, KERNEL_ROOT, MODERN, Owner, REFERENCES, USER, World, cr3s, interrupted};

/// CPU 1 holds a space lazily, with a page and its path cached.
fn with_lazy_cpu(policy: Policy) -> (&'static World, usize) {
    let world = World::new(policy, 2);
    let space = world.space();
    world.map(space, USER);
    world.map(space, USER + 0x1000);
    world.switch(1, space);
    world.touch(1, USER);
    world.lazy(1);
    world.forget_logs();
    (world, space)
}

fn told(world: &World) -> bool {
    !interrupted(&world.log(0)).is_empty()
}

#[test]
fn inv_5_a_lazy_cpu_is_skipped_and_sees_the_change_when_it_returns() {
    let (world, space) = with_lazy_cpu(Policy::default());
    world.unmap(0, space, &[USER]);
    assert!(!told(world));
    assert_eq!(world.log(1), []);
    world.switch(1, space);
    assert_eq!(world.touch(1, USER), None);
    assert!(world.touch(1, USER + 0x1000).is_some());
}

#[test]
fn inv_5_what_a_lazy_cpu_fetches_unasked_is_flushed_when_it_returns() {
    let (world, space) = with_lazy_cpu(Policy::default());
    assert!(world.walk(1, USER + 0x1000).is_some());
    world.unmap(0, space, &[USER + 0x1000]);
    world.switch(1, space);
    assert_eq!(world.touch(1, USER + 0x1000), None);
}

#[test]
fn inv_5_a_freed_table_reaches_a_lazy_cpu() {
    for lazy in [Lazy::SkipUnlessTablesFreed, Lazy::InterruptOnce] {
        let (world, space) = with_lazy_cpu(Policy { lazy, ..Policy::default() });
        world.free_table(0, Owner::Space(space), USER);
        assert!(told(world));
        assert_eq!(world.cpus[1].cr3.get().root(), KERNEL_ROOT);
        world.walk(1, USER);
        world.switch(1, space);
        assert_eq!(world.touch(1, USER), None);
    }
}

#[test]
fn coming_back_to_an_unchanged_space_costs_no_cr3_write() {
    let (world, space) = with_lazy_cpu(Policy::default());
    world.switch(1, space);
    assert_eq!(cr3s(&world.log(1)), []);
    assert!(world.cpu(1).is_running(world.at(space)));
    world.lazy(1);
    assert!(!world.cpu(1).is_running(world.at(space)), "C-54: a lazy CPU must not touch user memory");
}

#[test]
fn without_lazy_mode_idle_loads_the_kernels_tables() {
    let (world, space) = with_lazy_cpu(Policy { lazy: Lazy::Off, ..Policy::default() });
    assert_eq!(world.cpus[1].cr3.get().root(), KERNEL_ROOT);
    world.unmap(0, space, &[USER]);
    assert!(!told(world));
    world.switch(1, space);
    assert_eq!(world.touch(1, USER), None);
}

/// Policies whose lazy CPUs are left alone at the end of a space: counted all along, or found when it ends.
fn left_alone(lazy: Lazy) -> impl Iterator<Item = Policy> {
    let sets = [CpuSetUpkeep::Exact, CpuSetUpkeep::Trimmed { every: 0 }];
    let choices = REFERENCES.iter().filter(|&&one| one != LazyReferences::ShotDown);
    sets.into_iter().flat_map(move |cpu_set| {
        choices.clone().map(move |&lazy_references| Policy { lazy, lazy_references, cpu_set, ..Policy::default() })
    })
}

fn unreferenced(world: &World, cpu: usize) -> usize {
    world.log(cpu).iter().filter(|did| matches!(did, Did::Event(Event::LastLazyReference(_)))).count()
}

#[test]
fn c_25_a_space_dies_with_its_last_lazy_cpu() {
    let leave: [fn(&'static World); 4] = [
        |world| world.load_kernel(1),
        |world| world.switch(1, world.space()),
        |world| world.offline(1),
        |world| world.quiet(1, |cpu, irqs| cpu.with_space(world.at(world.space()), irqs, || ())),
    ];
    for (policy, leave) in left_alone(Lazy::SkipUnlessTablesFreed).flat_map(|policy| leave.map(|how| (policy, how))) {
        let (world, space) = with_lazy_cpu(policy);
        assert_eq!(world.destroy(0, space), Destroyed::WhenUnreferenced);
        assert!(!told(world), "a CPU was interrupted for the end of a space");
        world.walk(1, USER);
        assert_eq!(world.memory.borrow().roots[space], Fate::Unhooked);
        leave(world);
        assert_eq!((unreferenced(world, 1), world.memory.borrow().roots[space]), (1, Fate::Freed));
    }
}

/// A batch keeps a table of the space beyond the space's end: its flush makes the CPU leave, which tells both events.
#[test]
fn a_cpu_says_that_it_was_made_to_leave_before_the_space_may_end() {
    let policy = Policy { lazy_references: LazyReferences::Awaited, ..Policy::default() };
    let (world, space) = with_lazy_cpu(policy);
    for va in [USER, USER + 0x1000] {
        world.unmap(0, space, &[va]);
    }
    let mut batch = TlbBatch::new(Vec::new());
    let table = world.memory.borrow_mut().unhook_table(Owner::Space(space), USER).unwrap();
    batch.unmap_table(&world.cpu(0), world.at(space), table);
    assert_eq!(world.destroy(0, space), Destroyed::WhenUnreferenced);
    world.forget_logs();
    world.enter_kernel(0);
    // The table went with the rest of the space, when its last reference was told of.
    let _freed = batch.flush(&world.cpu(0), Reason::FreeTable);
    let is_about_the_end = |did: &Did| matches!(did, Did::Event(Event::LazyLeft(_) | Event::LastLazyReference(_)));
    let events: Vec<Did> = world.log(1).into_iter().filter(is_about_the_end).collect();
    let token = world.at(space).token();
    assert_eq!(events, [Event::LazyLeft(token), Event::LastLazyReference(token)].map(Did::Event));
}

#[test]
fn c_25_a_space_that_nobody_holds_dies_at_once() {
    for policy in left_alone(Lazy::SkipUnlessTablesFreed) {
        let (world, space) = with_lazy_cpu(policy);
        world.switch(1, space);
        world.lazy(1);
        world.lazy(1);
        world.load_kernel(1);
        assert_eq!(unreferenced(world, 1), 0);
        assert_eq!(world.destroy(0, space), Destroyed::Now);
    }
}

/// Each finds a notice that is not its own space's, or none, or both at once; each space is told of once.
#[test]
fn c_25_spaces_that_die_together_are_each_told_of_once() {
    for policy in left_alone(Lazy::SkipUnlessTablesFreed) {
        let world = World::new(policy, 3);
        let (first, second) = (world.space(), world.space());
        world.switch(1, first);
        world.lazy(1);
        world.switch(2, first);
        world.lazy(2);
        world.switch(2, second);
        world.lazy(2);
        assert_eq!(world.destroy(0, second), Destroyed::WhenUnreferenced);
        assert_eq!(world.destroy(0, first), Destroyed::WhenUnreferenced);
        world.switch(1, world.space());
        assert_eq!((unreferenced(world, 1), unreferenced(world, 2)), (1, 0));
        world.switch(2, world.space());
        world.switch(2, world.space());
        assert_eq!((unreferenced(world, 1), unreferenced(world, 2)), (0, 1), "of each once");
        assert_eq!(world.memory.borrow().roots[second], Fate::Freed);
    }
}

#[test]
fn a_space_ends_later_with_interrupts_off() {
    for policy in left_alone(Lazy::SkipUnlessTablesFreed) {
        let (world, space) = with_lazy_cpu(policy);
        world.memory.borrow_mut().roots[space] = Fate::Unhooked;
        world.quiet(0, |cpu, _| assert_eq!(cpu.destroy_later(world.at(space)), Destroyed::WhenUnreferenced));
        world.load_kernel(1);
        assert_eq!(world.memory.borrow().roots[space], Fate::Freed);
    }
}

#[test]
#[should_panic(expected = "destroying a space twice")]
fn a_space_ends_once() {
    let (world, space) = with_lazy_cpu(Policy::default());
    let _ = world.destroy(0, space);
    let _never = world.destroy(0, space);
}

#[test]
#[should_panic(expected = "destroying a space that runs on another CPU")]
fn a_space_that_runs_elsewhere_is_not_destroyed() {
    let (world, space) = with_lazy_cpu(Policy::default());
    world.switch(1, space);
    let _never = world.destroy(0, space);
}

#[test]
#[should_panic(expected = "later where lazy references are shot down")]
fn a_policy_that_interrupts_ends_no_space_later() {
    let (world, space) = with_lazy_cpu(Policy { lazy_references: LazyReferences::ShotDown, ..Policy::default() });
    let _never = world.cpu(0).destroy_later(world.at(space));
}

#[test]
fn c_25_a_space_is_left_by_an_interrupt_too() {
    for policy in left_alone(Lazy::InterruptOnce) {
        let (world, space) = with_lazy_cpu(policy);
        world.unmap(0, space, &[USER]);
        assert_eq!(world.destroy(0, space), Destroyed::Now, "the interrupt made it leave");
    }
}

#[test]
fn c_25_destroy_shoots_down_whoever_holds_the_space() {
    for cpu_set in [CpuSetUpkeep::Exact, CpuSetUpkeep::Trimmed { every: 0 }] {
        let lazy_references = LazyReferences::ShotDown;
        let (world, space) = with_lazy_cpu(Policy { cpu_set, lazy_references, ..Policy::default() });
        world.switch(0, space);
        world.lazy(0);
        assert_eq!(world.destroy(0, space), Destroyed::Now);
        assert_eq!(world.cpus[0].cr3.get().root(), KERNEL_ROOT, "the destroyer held it lazily itself");
        assert_eq!(world.cpus[1].cr3.get().root(), KERNEL_ROOT);
        world.walk(1, USER);
    }
}

#[test]
#[should_panic(expected = "destroying a space that runs here")]
fn a_running_space_is_not_destroyed() {
    let (world, space) = with_lazy_cpu(Policy::default());
    world.switch(0, space);
    let _never = world.destroy(0, space);
}

#[test]
fn c_54_an_nmi_is_told_no_while_a_lazy_cpu_has_not_flushed_yet() {
    let (world, space) = with_lazy_cpu(Policy::default());
    world.unmap(0, space, &[USER]);
    let asked = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = std::rc::Rc::clone(&asked);
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(move |world| {
        count.set(count.get() + 1);
        assert!(!world.cpu(1).is_running(world.at(space)), "what it would use is stale");
    }));
    world.switch(1, space);
    assert_eq!(asked.get(), 1, "coming back loads CR3 once, as the space has changed");
    assert!(world.cpu(1).is_running(world.at(space)));
    world.load_kernel(1);
    assert_eq!(asked.get(), 2, "nor while it leaves");
}

const LEAVE: [fn(&'static World, usize); 2] =
    [|world, cpu| world.load_kernel(cpu), |world, cpu| world.switch(cpu, world.space())];

/// Whoever asks for a space that is left, though no notice came, asks for one that may be gone.
#[test]
fn c_25_only_a_notice_makes_a_cpu_look_at_the_space_that_it_leaves_and_only_once() {
    let kernel_set = if HAS_HISTORY { KernelSet::Written } else { KernelSet::Unwritten };
    let policy = Policy { history: History { kernel_set, ..History::NONE }, ..Policy::default() };
    let gone = |world: &World, space: usize| world.memory.borrow_mut().roots[space] = Fate::Freed;
    for (features, leave) in [MODERN, Features::default()].into_iter().flat_map(|cpu| LEAVE.map(|how| (cpu, how))) {
        let world = World::of(policy, &[features; 2]);
        for stays in [World::lazy, |_, _| ()] {
            let space = world.space();
            world.switch(1, space);
            stays(world, 1);
            gone(world, space);
            leave(world, 1);
        }
        let [dying, next] = [world.space(), world.space()];
        world.switch(1, dying);
        world.lazy(1);
        assert_eq!(world.destroy(0, dying), Destroyed::WhenUnreferenced);
        world.forget_logs();
        leave(world, 1);
        let log = world.log(1);
        assert!(log.contains(&Did::Event(Event::LastLazyReference(world.at(dying).token()))));
        assert!(!log.contains(&Did::Event(Event::SwitchKept)), "nothing was held of the next space");
        world.switch(1, next);
        gone(world, next);
        leave(world, 1);
    }
}

#[test]
fn c_25_of_two_cpus_that_hold_a_dying_space_the_second_tells_of_its_end() {
    for (policy, leave) in left_alone(Lazy::SkipUnlessTablesFreed).flat_map(|policy| LEAVE.map(|how| (policy, how))) {
        let world = World::new(policy, 3);
        let space = world.space();
        for cpu in [1, 2] {
            world.switch(cpu, space);
            world.lazy(cpu);
        }
        assert_eq!(world.destroy(0, space), Destroyed::WhenUnreferenced);
        for (cpu, told) in [(1, 0), (2, 1)] {
            leave(world, cpu);
            assert_eq!(unreferenced(world, cpu), told, "CPU {cpu}");
        }
    }
}

/// CPU 1 runs something else, and is about to leave the set, for which it looks at the space once more.
#[test]
fn c_25_a_space_does_not_end_before_every_member_of_an_exact_set_has_answered() {
    let (cpu_set, lazy_references) = (CpuSetUpkeep::Exact, LazyReferences::ShotDown);
    let (world, space) = with_lazy_cpu(Policy { cpu_set, lazy_references, ..Policy::default() });
    world.switch(1, world.space());
    world.at(space).cpus().add(CpuId(1), Ordering::Relaxed); // Relaxed: one thread
    assert_eq!((world.destroy(0, space), told(world)), (Destroyed::Now, true));
}
