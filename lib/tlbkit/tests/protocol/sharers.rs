//! Flushes below page tables whose sharers are known: whom they interrupt, and what they leave behind.

use tlbkit::sync::AtomicU64;
use tlbkit::{
    Broadcast, CpuId, Cr3, Directories, Event, Features, GracePeriods, Invpcid, IrqsOff, Isolation, PAGE_BYTES, Passed,
    PhysAddr, Policy, Reach, Reason, Scope, Sharers, Stride, TlbGather, Translations, VirtAddr,
};
use tlbkit_testkit::leak;

use crate::machine::{Did, MODERN, OWN_ROOT, USER, World, cr3s, interrupted, invlpgs};

const FOUR_CPUS: usize = 4;

/// All CPUs run one space, and have nothing to do with one another.
fn world(policy: Policy) -> (&'static World, usize) {
    let world = World::new(policy, FOUR_CPUS);
    (world, run_one_space(world))
}

fn run_one_space(world: &'static World) -> usize {
    let space = world.space();
    (0..FOUR_CPUS).for_each(|cpu| world.switch(cpu, space));
    world.forget_logs();
    space
}

fn shared_by(cpus: &[u32]) -> Sharers {
    let sharers = Sharers::new();
    cpus.iter().for_each(|&cpu| sharers.hook(CpuId(cpu)));
    sharers
}

/// CPU 0 takes away `pages` pages below tables of those sharers.
fn unmap(world: &'static World, space: usize, pages: u64, tables: &[&Sharers]) {
    let mut reach = Reach::NOBODY;
    tables.iter().for_each(|table| reach.add(table));
    unmap_within(world, space, pages, reach);
}

fn unmap_within(world: &'static World, space: usize, pages: u64, reach: Reach) {
    let mut gather = TlbGather::new(Translations::OfSpace(world.at(space)), Vec::<u64>::new());
    gather.range(&world.cpu(0), VirtAddr(USER), pages, Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
    gather.flush_within(&world.cpu(0), reach).into_frames();
}

/// The CPUs that CPU 0 has interrupted.
fn told(world: &World) -> Vec<u32> {
    let log = world.log(0);
    if log.contains(&Did::IpiToOthers) { vec![1, 2, 3] } else { interrupted(&log) }
}

#[cfg(not(narrow_sets))]
#[test]
fn inv_6_the_sharers_of_all_tables_are_interrupted_and_no_other() {
    for (tables, expected) in [
        (&[&[0][..], &[]][..], &[][..]),
        (&[&[], &[0, 3]], &[3]),
        (&[&[2], &[0]], &[2]),
        (&[&[1, 2], &[3]], &[1, 2, 3]),
    ] {
        let (world, space) = world(Policy::default());
        let tables: Vec<_> = tables.iter().map(|cpus| shared_by(cpus)).collect();
        unmap(world, space, 1, &tables.iter().collect::<Vec<_>>());
        assert_eq!(told(world), expected, "{tables:?}");
    }
}

/// With INVLPGB too, as long as the space has no PCID that all CPUs share.
#[cfg(not(narrow_sets))]
#[test]
fn inv_3_what_this_cpu_alone_can_hold_advances_no_generation() {
    let policy = Policy { broadcast: Broadcast::From { cpus: u32::MAX }, ..Policy::default() };
    for world in [World::new(policy, FOUR_CPUS), World::with_broadcast(policy, &[MODERN; FOUR_CPUS], 8)] {
        let space = run_one_space(world);
        let before = world.at(space).generation();
        unmap(world, space, 2, &[&shared_by(&[0])]);
        assert_eq!(world.at(space).generation(), before);
        assert_eq!(invlpgs(&world.log(0)), [USER, USER + PAGE_BYTES]);
        unmap(world, space, 2, &[&shared_by(&[0, 1])]);
        assert_ne!(world.at(space).generation(), before);
    }
}

/// CPU 128 would share the bit of CPU 0.
#[cfg(not(narrow_sets))]
#[test]
fn inv_3_a_cpu_is_alone_as_long_as_each_has_a_bit_of_its_own() {
    for (cpus, is_alone) in [(128, true), (129, false)] {
        let world = World::new(Policy::default(), cpus);
        let space = world.space();
        world.switch(0, space);
        let before = world.at(space).generation();
        unmap(world, space, 1, &[&shared_by(&[0])]);
        assert_eq!(world.at(space).generation() == before, is_alone, "{cpus} CPUs");
    }
}

/// With two bits for four CPUs.
#[cfg(narrow_sets)]
#[test]
fn inv_6_a_cpu_that_shares_the_bit_of_a_sharer_is_interrupted() {
    let (world, space) = world(Policy::default());
    unmap(world, space, 1, &[&shared_by(&[0])]);
    assert_eq!(told(world), [2]);
}

#[test]
fn a_flush_says_how_many_pages_it_names_and_what_is_over_whoever_can_hold_them() {
    for sharers in [&[0][..], &[0, 1]] {
        let (world, space) = world(Policy::default());
        unmap(world, space, 2, &[&shared_by(sharers)]);
        let steps = [Event::FlushBegin(2), Event::FlushLocalDone, Event::FlushEnd].map(Did::Event);
        let log = world.log(0).into_iter().filter(|did| steps.contains(did));
        assert_eq!(log.collect::<Vec<_>>(), steps, "{sharers:?}");
    }
}

#[cfg(not(narrow_sets))]
#[test]
fn what_two_reaches_name_is_in_their_merger() {
    let [mut reach, other, both] = [&[3][..], &[64], &[3, 64]].map(|cpus| {
        let mut reach = Reach::NOBODY;
        reach.add(&shared_by(cpus));
        reach
    });
    reach.merge(other);
    assert_eq!(reach, both);
}

/// In both words.
#[test]
fn a_table_that_was_cleared_has_no_sharers() {
    let sharers = shared_by(&[3, 64]);
    assert!(sharers.may_include(CpuId(3)) && sharers.may_include(CpuId(64)));
    sharers.clear();
    assert!(!sharers.may_include(CpuId(3)) && !sharers.may_include(CpuId(64)));
}

#[test]
fn a_page_that_no_cpu_can_walk_to_is_not_flushed() {
    let (world, space) = world(Policy::default());
    unmap(world, space, 1, &[&Sharers::new()]);
    assert_eq!(world.log(0), []);
}

/// CPU 0 is in another space, and its ASID keeps what it holds of this one.
#[test]
fn inv_6_a_sharer_that_runs_another_space_finds_a_new_generation() {
    let (world, space) = world(Policy::default());
    let before = world.at(space).generation();
    world.switch(0, world.space());
    unmap(world, space, 1, &[&shared_by(&[0])]);
    assert_ne!(world.at(space).generation(), before);
}

/// CPU 1 is passed by, then meant: it flushes the page alone, and stays behind.
#[test]
fn inv_4_a_cpu_that_was_passed_by_flushes_what_is_named_and_no_more() {
    let (world, space) = world(Policy::default());
    unmap(world, space, 1, &[&shared_by(&[0, 2])]);
    assert_eq!(world.log(1), []);
    unmap(world, space, 1, &[&shared_by(&[0, 1])]);
    assert_eq!((invlpgs(&world.log(1)), cr3s(&world.log(1))), (vec![USER], vec![]));
    world.forget_logs();
    world.switch(1, world.space());
    world.switch(1, space);
    assert!(cr3s(&world.log(1)).iter().any(|cr3| !cr3.keeps() && cr3.root() == world.at(space).root()));
}

/// It is the next one for both, and is all that they owe.
#[test]
fn inv_4_those_whom_a_flush_reaches_keep_the_rest_when_they_come_back() {
    let (world, space) = world(Policy::default());
    unmap(world, space, 1, &[&shared_by(&[0, 1])]);
    for cpu in [0, 1] {
        world.switch(cpu, world.space());
        world.forget_logs();
        world.switch(cpu, space);
        assert!(cr3s(&world.log(cpu)).iter().all(|cr3| cr3.keeps()), "CPU {cpu}");
    }
}

/// A flush for which no sharers are known brings up to date whom others have passed by.
#[test]
fn inv_4_a_cpu_that_was_passed_by_flushes_everything_with_all_others() {
    let (world, space) = world(Policy::default());
    unmap(world, space, 1, &[&shared_by(&[0, 2])]);
    unmap_within(world, space, 1, Reach::EVERYBODY);
    let (log, loaded) = (world.log(1), world.cpus[1].cr3.get());
    assert_eq!((invlpgs(&log), cr3s(&log)), (vec![], vec![Cr3::flushing(world.at(space).root(), loaded.pcid())]));
}

/// A machine on which no CPU has page tables of its own.
#[test]
fn inv_6_where_all_cpus_walk_the_same_tables_all_are_interrupted() {
    let (world, space) = world(Policy::default());
    world.cpus.iter().for_each(|core| core.directories.set(Directories::Shared));
    unmap(world, space, 1, &[&shared_by(&[0])]);
    assert_eq!(told(world), [1, 2, 3]);
}

/// What the library knows of it is new before CR3 is: an NMI that writes CR3 again does not go back.
#[test]
fn a_root_of_this_cpus_own_is_loaded_and_nothing_is_flushed() {
    let (world, space) = world(Policy::default());
    let (own, pcid) = (PhysAddr(world.at(space).root().0 + OWN_ROOT), world.cpus[0].cr3.get().pcid());
    world.cpus[0].kept.root_offset.set(OWN_ROOT);
    *world.cpus[0].kept.nmi.borrow_mut() =
        Some(Box::new(move |world| assert_eq!(world.cpu(0).loaded(&IrqsOff::assume()).root(), own)));
    world.quiet(0, |cpu, irqs| cpu.reload_root_here(world.at(space), irqs));
    assert_eq!(cr3s(&world.log(0)), [Cr3::keeping(own, pcid)]);
    world.cpu(0).flush_loaded_on_this_cpu();
    assert_eq!(cr3s(&world.log(0)), [Cr3::flushing(own, pcid)]);
}

#[test]
fn inv_10_a_flush_alone_reaches_both_halves() {
    for (pages, features) in [(1, MODERN), (1, Features { invpcid: false, ..MODERN }), (100, MODERN)] {
        let world = World::of(Policy { isolation: Isolation::On, ..Policy::default() }, &[features; 2]);
        let space = world.space();
        (0..2).for_each(|cpu| world.switch(cpu, space));
        world.exit_to_user(0);
        world.enter_kernel(0);
        world.forget_logs();
        unmap(world, space, pages, &[&shared_by(&[0])]);
        world.exit_to_user(0);
        let log = world.log(0);
        let user = world.at(space).root().0 + PAGE_BYTES;
        let is_flushed_later = cr3s(&log).iter().any(|cr3| cr3.root().0 == user && !cr3.keeps());
        let is_flushed = log.iter().any(|did| matches!(did, Did::Invpcid(Invpcid::Address(_, VirtAddr(USER)))));
        assert!(is_flushed || is_flushed_later, "{pages} pages, {features:?}: {log:?}");
    }
}

#[test]
fn inv_11_global_entries_go_from_all_cpus_whoever_shares_the_table() {
    let (world, space) = world(Policy::default());
    let mut gather = TlbGather::new(Translations::OfSpace(world.at(space)), Vec::<u64>::new());
    gather.page(&world.cpu(0), VirtAddr(USER), Stride::Page4K, Scope::Global, Reason::RemovePte);
    let mut reach = Reach::NOBODY;
    reach.add(&shared_by(&[0]));
    gather.flush_within(&world.cpu(0), reach).into_frames();
    assert_eq!(told(world), [1, 2, 3]);
}

/// A walker in software reads tables that its CPU has not hooked.
#[test]
fn c_23_who_interrupts_walkers_interrupts_all_that_run_the_space() {
    let (world, space) = world(Policy::default());
    let mut gather = TlbGather::new(Translations::OfSpace(world.at(space)), Vec::<u64>::new());
    gather.page(&world.cpu(0), VirtAddr(USER), Stride::Page4K, Scope::NonGlobal, Reason::FreeTable);
    gather.interrupt_walkers();
    let mut reach = Reach::NOBODY;
    reach.add(&shared_by(&[0]));
    gather.flush_within(&world.cpu(0), reach).into_frames();
    assert_eq!(told(world), [1, 2, 3]);
}

/// Nothing was recorded, so no sharers have been added: it cannot be known what mapped the frame, or led to the table.
#[test]
fn inv_9_a_frame_without_a_page_comes_out_when_all_cpus_have_flushed() {
    type Need = fn(&mut TlbGather<'static, &'static [AtomicU64], Vec<u64>>);
    let needs: [Need; 3] = [|gather| gather.hold(7), TlbGather::flush_everything, TlbGather::tables_freed];
    for need in needs {
        let (world, space) = world(Policy::default());
        let gather = || {
            let mut gather = TlbGather::new(Translations::OfSpace(world.at(space)), Vec::new());
            need(&mut gather);
            gather
        };
        gather().flush_within(&world.cpu(0), Reach::NOBODY).into_frames();
        assert_eq!(told(world), [1, 2, 3]);
        let periods = GracePeriods::new(leak((0..FOUR_CPUS).map(|_| Passed::new())));
        let mut reach = Reach::NOBODY;
        reach.add(&shared_by(&[0]));
        world.forget_logs();
        let retired = gather().retire_within(&world.cpu(0), &periods, reach);
        assert!(retired.try_now().is_err() || told(world) == [1, 2, 3]);
    }
}

/// What CPU 0 alone can hold comes back when it has flushed; what another CPU or nobody knows of waits for that CPU.
#[cfg(not(narrow_sets))]
#[test]
fn inv_6_what_this_cpu_alone_can_hold_has_no_grace_period() {
    for (sharers, is_now) in [(&[0][..], true), (&[], true), (&[0, 1], false), (&[1], false)] {
        let (world, space) = world(Policy::default());
        let periods = GracePeriods::new(leak((0..FOUR_CPUS).map(|_| Passed::new())));
        let before = world.at(space).generation();
        let mut gather = TlbGather::new(Translations::OfSpace(world.at(space)), Vec::<u64>::new());
        gather.range(&world.cpu(0), VirtAddr(USER), 1, Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
        let mut reach = Reach::NOBODY;
        reach.add(&shared_by(sharers));
        let retired = gather.retire_within(&world.cpu(0), &periods, reach);
        assert_eq!(retired.try_now().is_ok(), is_now, "{sharers:?}");
        assert_eq!(world.at(space).generation() == before, is_now, "{sharers:?}");
        let log = world.log(0);
        assert_eq!((interrupted(&log), invlpgs(&log).is_empty()), (vec![], sharers.is_empty()), "{sharers:?}");
    }
}
