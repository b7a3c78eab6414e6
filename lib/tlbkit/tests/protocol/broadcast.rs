//! INVLPGB: which instructions a flush is, and that it interrupts nobody.

use std::cell::Cell;

use tlbkit::sync::Ordering;
use tlbkit::{
    Broadcast, Compare, Cpu, CpuId, Cr3, Destroyed, Features, Invlpgb, Invpcid, Isolation, LazyReferences, Pcid,
    PhysAddr, Policy, RangeRule, Reach, Reason, Scope, Sharers, Stride, Tables, TlbBatch, TlbGather, Translations,
    VirtAddr,
};

use crate::machine::{Did, KERNEL, KERNEL_ROOT, MODERN, Owner, REFERENCES, USER, World, cr3s, root_of};

/// The first PCID that all CPUs can share.
const SHARED: Pcid = Pcid(16);
const POLICY: Policy = Policy { broadcast: Broadcast::From { cpus: 3 }, ..Policy::DEFAULT };

/// Up to so many CPUs run space 0 and have used its pages; it has a PCID, and one INVLPGB takes 8 pages.
fn shared(policy: Policy, cpus: usize) -> &'static World {
    let world = World::with_broadcast(policy, &vec![MODERN; cpus], 8);
    let space = world.space();
    (0..4).for_each(|page| _ = world.map(space, USER + page * 0x1000));
    (0..cpus).for_each(|cpu| world.switch(cpu, space));
    assert_eq!(world.cpu(0).share_pcid(world.at(space)), Some(SHARED));
    for cpu in 0..cpus {
        (0..4).for_each(|page| _ = world.touch(cpu, USER + page * 0x1000));
    }
    world.forget_logs();
    world
}

/// What CPU 0 has executed, but for reports.
fn executed(world: &'static World) -> Vec<Did> {
    world.log(0).into_iter().filter(|did| !matches!(did, Did::Event(_))).collect()
}

const fn pages(pcid: Pcid, first: u64, pages: u32, stride: Stride, tables: Tables) -> Did {
    Did::Invlpgb(Invlpgb::Pages { pcid, first: VirtAddr(first), pages, stride, tables })
}

const fn base(pcid: Pcid, first: u64, count: u32) -> Did {
    pages(pcid, first, count, Stride::Page4K, Tables::Kept)
}

#[test]
fn inv_6_a_page_on_64_cpus_takes_what_it_takes_on_two_and_no_interrupt() {
    for cpus in [2, 64, 65] {
        let world = shared(POLICY, cpus);
        world.unmap(0, 0, &[USER]);
        assert_eq!(executed(world), [base(SHARED, USER, 1), Did::Tlbsync], "{cpus} CPUs");
        assert!((1..cpus).all(|cpu| world.log(cpu).is_empty() && world.touch(cpu, USER).is_none()), "{cpus} CPUs");
    }
}

/// Where page tables say who can hold a page, INVLPGB names that page all the same, and not all of the space.
#[test]
fn inv_6_what_is_flushed_within_a_reach_is_named_page_by_page() {
    let world = shared(POLICY, 2);
    let sharers = Sharers::new();
    sharers.hook(CpuId(1));
    let mut gather = TlbGather::new(Translations::OfSpace(world.at(0)), Vec::<u64>::new());
    gather.range(&world.cpu(0), VirtAddr(USER), 2, Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
    let mut reach = Reach::NOBODY;
    reach.add(&sharers);
    gather.flush_within(&world.cpu(0), reach).into_frames();
    assert_eq!(executed(world), [base(SHARED, USER, 2), Did::Tlbsync]);
}

#[test]
fn a_space_moves_once_a_flush_interrupts_as_many_cpus_as_the_policy_says() {
    for (cpus, moves) in [(3, false), (4, true)] {
        let world = World::with_broadcast(POLICY, &vec![MODERN; cpus], 8);
        let space = world.space();
        (0..4).for_each(|page| _ = world.map(space, USER + page * 0x1000));
        (0..cpus).for_each(|cpu| world.switch(cpu, space));
        world.unmap(0, space, &[USER]);
        world.forget_logs();
        world.unmap(0, space, &[USER + 0x1000]);
        let has_sent = executed(world).iter().any(|did| matches!(did, Did::Ipi(_) | Did::IpiToOthers));
        assert_eq!(has_sent, !moves, "{cpus} CPUs");
        let in_shared = |cpu: usize| world.cpus[cpu].cr3.get().pcid() == SHARED;
        assert!((0..cpus).all(|cpu| in_shared(cpu) == moves), "{cpus} CPUs");
    }
}

/// Interrupts may be off where a flush has nobody to wait for, and a move has.
#[test]
fn inv_7_a_flush_that_interrupts_nobody_moves_no_space() {
    let world = World::with_broadcast(Policy { broadcast: Broadcast::From { cpus: 0 }, ..POLICY }, &[MODERN; 2], 8);
    let space = world.space();
    world.map(space, USER);
    (0..2).for_each(|cpu| world.switch(cpu, space));
    world.switch(1, world.space());
    let flush = |cpu: Cpu<'_, '_, _>| {
        cpu.flush_range(world.at(space), VirtAddr(USER), 1, Stride::Page4K, Reason::WriteProtect);
    };
    world.quiet(0, |cpu, _irqs| flush(cpu));
    flush(world.cpu(0));
    assert_ne!(world.cpus[0].cr3.get().pcid(), SHARED);
}

#[test]
fn c_36_every_page_is_named_once_for_each_stride_and_count() {
    let ceiling = RangeRule::Ceiling { pages: 4096, compare: Compare::Above };
    let world = shared(Policy { range: ceiling, ..POLICY }, 2);
    for (stride, most) in [(Stride::Page4K, 8), (Stride::Page2M, 8), (Stride::Page1G, 1)] {
        for count in [1, 2, 7, 8, 9, 17, 64] {
            world.forget_logs();
            world.cpu(0).flush_range(world.at(0), VirtAddr(0x40_0000_0000), count, stride, Reason::WriteProtect);
            let done = executed(world);
            let (Some(Did::Tlbsync), pieces) = (done.last(), &done[..done.len() - 1]) else { panic!("{done:?}") };
            let mut named = Vec::new();
            for did in pieces {
                let Did::Invlpgb(Invlpgb::Pages { first, pages, stride: step, .. }) = *did else { panic!("{did:?}") };
                assert!(pages <= most && step == stride, "{did:?}");
                named.extend((0..u64::from(pages)).map(|n| first.0 + n * stride.bytes()));
            }
            let all: Vec<_> = (0..u64::from(count)).map(|n| 0x40_0000_0000 + n * stride.bytes()).collect();
            assert_eq!((named, pieces.len()), (all, count.div_ceil(most) as usize), "{count} of {stride:?}");
        }
    }
}

#[test]
fn what_leaves_its_half_or_is_above_the_ceiling_is_all_of_the_pcid() {
    let world = shared(POLICY, 2);
    for (va, count) in [((1 << 47) - 0x2000, 3), (KERNEL, 1), (!0xfff, 2), (USER, 34)] {
        world.forget_logs();
        world.cpu(0).flush_range(world.at(0), VirtAddr(va), count, Stride::Page4K, Reason::WriteProtect);
        assert_eq!(executed(world), [Did::Invlpgb(Invlpgb::Single(SHARED)), Did::Tlbsync], "{va:#x}");
    }
}

#[test]
fn inv_10_each_half_has_an_invlpgb_of_its_own() {
    let world = shared(Policy { isolation: Isolation::On, ..POLICY }, 2);
    world.enter_kernel(0);
    world.forget_logs();
    world.unmap(0, 0, &[USER, USER + 0x1000]);
    let expected = [base(SHARED, USER, 2), base(SHARED.user_half(), USER, 2), Did::Tlbsync];
    assert_eq!(executed(world), expected);
    assert!(world.touch(1, USER).is_none() && world.touch(1, USER + 0x2000).is_some());
}

#[test]
fn inv_5_freed_tables_interrupt_no_lazy_cpu() {
    let world = shared(POLICY, 3);
    world.lazy(1);
    world.forget_logs();
    world.free_table(0, Owner::Space(0), USER);
    assert!(executed(world).contains(&pages(SHARED, USER, 4, Stride::Page4K, Tables::Freed)));
    assert!(world.log(1).is_empty() && world.log(2).is_empty());
    world.switch(1, 0);
    assert!(world.cpu(1).is_running(world.at(0)));
    assert_eq!(world.touch(1, USER), None);
}

/// A CPU that has its own PCID of the space has to flush that, whatever the machine has.
#[test]
fn c_24_a_lazy_cpu_of_a_space_that_has_not_moved_looks_at_its_generation() {
    let world = World::with_broadcast(POLICY, &[MODERN; 2], 8);
    let space = world.space();
    world.map(space, USER);
    world.switch(1, space);
    assert!(world.touch(1, USER).is_some());
    world.lazy(1);
    world.unmap(0, space, &[USER]);
    world.switch(1, space);
    assert_eq!(world.touch(1, USER), None);
}

/// Before it writes CR3, and before the TLBSYNC of the move, after which nothing is cached under the PCID.
#[test]
fn inv_2_a_cpu_joins_the_set_before_it_loads_a_space_and_finds_its_pcid_after_the_tlbsync() {
    let world = World::with_broadcast(POLICY, &[MODERN; 2], 8);
    let space = world.space();
    let is_first = Cell::new(true);
    *world.cpus[0].kept.nmi.borrow_mut() = Some(Box::new(move |world| {
        world.switch(1, space);
        assert_eq!(world.cpus[1].cr3.get().pcid() == SHARED, !is_first.take());
        world.load_kernel(1);
    }));
    assert_eq!(world.cpu(0).share_pcid(world.at(space)), Some(SHARED));
    world.at(space).cpus().remove(CpuId(1), Ordering::Relaxed); // Relaxed: one thread
    let is_member = move |world: &World| world.at(space).cpus().contains(CpuId(1), Ordering::Relaxed); // as above
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(move |world| assert!(is_member(world))));
    world.switch(1, space);
    assert_eq!(world.cpus[1].cr3.get().pcid(), SHARED);
}

#[test]
fn c_08_a_kernel_page_goes_in_every_pcid_and_a_table_of_the_kernel_with_everything() {
    for isolation in [Isolation::Off, Isolation::On] {
        let world = shared(Policy { isolation, ..POLICY }, 2);
        world.map_kernel(KERNEL);
        (0..2).for_each(|cpu| _ = world.touch_in_kernel(cpu, KERNEL));
        world.forget_logs();
        world.revoke(0, Owner::Kernel, &[KERNEL]);
        let what = Invlpgb::PagesOfAll { first: VirtAddr(KERNEL), pages: 1, stride: Stride::Page4K };
        assert_eq!(executed(world), [Did::Invlpgb(what), Did::Tlbsync]);
        assert_eq!(world.touch_in_kernel(1, KERNEL), None);
        world.forget_logs();
        world.free_table(0, Owner::Kernel, KERNEL);
        assert_eq!(executed(world), [Did::Invlpgb(Invlpgb::AllAndGlobals), Did::Tlbsync]);
        let mut gather = world.gather(Owner::Kernel);
        gather.page(&world.cpu(0), VirtAddr(USER), Stride::Page4K, Scope::Global, Reason::KernelRemove);
        world.finish(0, gather);
        let everything = [Did::Invlpgb(Invlpgb::AllAndGlobals), Did::Tlbsync];
        assert_eq!(executed(world), everything, "it leaves the kernel's half");
    }
}

/// Which instructions flush this CPU alone: the user half too where there is one, at once, as no bit stands for it.
#[test]
fn inv_10_a_flush_of_one_cpu_reaches_the_user_half_of_a_shared_pcid() {
    let of_half = Did::Invpcid(Invpcid::Single(SHARED.user_half()));
    let rows = [
        (Isolation::Off, true, vec![], vec![]),
        (Isolation::On, true, vec![of_half], vec![Did::Invpcid(Invpcid::Address(SHARED.user_half(), VirtAddr(USER)))]),
        (Isolation::On, false, vec![Did::TogglePge], vec![Did::TogglePge]),
    ];
    for (isolation, invpcid, with_all, with_page) in rows {
        let world = World::with_broadcast(Policy { isolation, ..POLICY }, &[Features { invpcid, ..MODERN }], 8);
        let space = world.space();
        world.switch(0, space);
        assert_eq!(world.cpu(0).share_pcid(world.at(space)), Some(SHARED));
        let flushes = |flush: &dyn Fn(), before: &[Did], last: Did| {
            world.forget_logs();
            flush();
            let mut did = executed(world);
            did.sort_by_key(|did| *did == last);
            assert_eq!(did, [before, &[last]].concat(), "{isolation:?}, {invpcid}");
        };
        let all = || world.cpu(0).flush_loaded_on_this_cpu();
        flushes(&all, &with_all, Did::Cr3(Cr3::flushing(root_of(space), SHARED)));
        let page = || world.cpu(0).flush_this_cpu(VirtAddr(USER), 1, Stride::Page4K);
        flushes(&page, &with_page, Did::Invlpg(USER));
        world.load_kernel(0);
        flushes(&all, &[], Did::Cr3(Cr3::flushing(KERNEL_ROOT, Pcid::KERNEL)));
    }
}

/// What a CPU without PCIDs owes to its user half waits for its way out: INVPCID of a PCID would fault there.
#[test]
fn inv_10_a_cpu_without_pcids_owes_its_user_half_whatever_the_machine_has() {
    let features = Features { pcid: false, ..MODERN };
    let world = World::with_broadcast(Policy { isolation: Isolation::On, ..POLICY }, &[features; 2], 8);
    let space = world.space();
    world.map(space, USER);
    world.switch(0, space);
    assert!(world.touch(0, USER).is_some());
    world.unmap(1, space, &[USER]);
    assert_eq!(world.touch(0, USER), None);
}

#[test]
fn a_batch_with_a_space_that_moved_interrupts_nobody_for_the_others_either() {
    let world = shared(POLICY, 3);
    let other = world.space();
    world.switch(2, other);
    world.forget_logs();
    for spaces in [&[0][..], &[0, other][..], &[other, 0][..]] {
        let mut batch = TlbBatch::new(Vec::<u64>::new());
        spaces.iter().for_each(|&space| batch.revoke(&world.cpu(0), world.at(space)));
        assert!(!batch.is_empty());
        let _none = batch.flush(&world.cpu(0), Reason::Migrate);
        assert_eq!(executed(world), [Did::Invlpgb(Invlpgb::All), Did::Tlbsync]);
        world.forget_logs();
    }
}

#[test]
fn a_batch_of_spaces_that_have_not_moved_interrupts_those_that_run_them() {
    let world = World::with_broadcast(POLICY, &[MODERN; 2], 8);
    let space = world.space();
    (0..2).for_each(|cpu| world.switch(cpu, space));
    world.forget_logs();
    let mut batch = TlbBatch::new(Vec::<u64>::new());
    batch.revoke(&world.cpu(0), world.at(space));
    let _none = batch.flush(&world.cpu(0), Reason::Migrate);
    let did = executed(world);
    assert!(did.contains(&Did::Ipi(1)) && !did.contains(&Did::Tlbsync), "{did:?}");
}

/// Under a PCID that all CPUs share, no generation makes up for what a CPU has missed.
#[test]
fn c_75_a_flush_of_another_page_flushes_what_a_batch_owes_with_its_own() {
    const NEXT: VirtAddr = VirtAddr(USER + 0x1000);
    const FLUSHES: [fn(&'static World); 3] = [
        |world| world.unmap(0, 0, &[NEXT.0]),
        |world| world.cpu(0).flush_range(world.at(0), NEXT, 1, Stride::Page4K, Reason::WriteProtect),
        |world| world.cpu(0).flush_range_alone(world.at(0), NEXT, 1, Stride::Page4K, Tables::Kept).unwrap(),
    ];
    for flush in FLUSHES {
        let world = shared(POLICY, 2);
        let mut batch = TlbBatch::new(Vec::new());
        let page = world.memory.borrow_mut().unhook(Owner::Space(0), USER).unwrap();
        world.enter_kernel(0);
        batch.unmap(&world.cpu(0), world.at(0), page.stamp);
        world.forget_logs();
        flush(world);
        assert_eq!(world.touch(1, USER), None);
        assert_eq!(executed(world), [Did::Invlpgb(Invlpgb::Single(SHARED)), Did::Tlbsync]);
        let freed = batch.flush(&world.cpu(0), Reason::Migrate).into_frames();
        world.memory.borrow_mut().free(&freed);
        world.audit();
        world.forget_logs();
        flush(world);
        assert!(!executed(world).contains(&Did::Invlpgb(Invlpgb::Single(SHARED))), "nothing is owed any more");
    }
}

/// A CPU that takes pages of a space away, and does not run it, has nothing from a move.
#[test]
fn a_space_moves_for_a_cpu_that_runs_it_alone() {
    for runs_it in [true, false] {
        let world = World::with_broadcast(POLICY, &[MODERN; 4], 8);
        let [space, other] = [world.space(), world.space()];
        world.map(space, USER);
        (0..4).for_each(|cpu| world.switch(cpu, space));
        if !runs_it {
            world.switch(0, other);
        }
        world.unmap(0, space, &[USER]);
        assert_eq!(executed(world).contains(&Did::Tlbsync), runs_it);
    }
}

/// The end of the space is over only when the lazy CPU has left; until then the PCID is not given out.
#[test]
fn c_71_a_pcid_is_flushed_before_the_next_space_gets_it() {
    for &lazy_references in REFERENCES {
        let world = shared(Policy { lazy_references, ..POLICY }, 2);
        let [other, next] = [world.space(), world.space()];
        world.lazy(1);
        world.switch(0, other);
        let ended = world.destroy(0, 0);
        let is_awaited = lazy_references != LazyReferences::ShotDown;
        assert_eq!(ended == Destroyed::WhenUnreferenced, is_awaited, "{lazy_references:?}");
        let taken = if is_awaited { Pcid(17) } else { SHARED };
        assert_eq!(world.cpu(0).share_pcid(world.at(other)), Some(taken), "{lazy_references:?}");
        world.switch(1, other);
        world.forget_logs();
        world.switch(0, next);
        let again = if is_awaited { SHARED } else { Pcid(17) };
        world.forget_logs();
        assert_eq!(world.cpu(0).share_pcid(world.at(next)), Some(again), "{lazy_references:?}");
        assert_eq!(executed(world)[..2], [Did::Invlpgb(Invlpgb::Single(again)), Did::Tlbsync]);
    }
}

/// Without PCIDs, or where the policy does not want it, everything is as without the instruction.
#[test]
fn a_space_stays_as_it_is_where_it_cannot_move() {
    let off = Policy { broadcast: Broadcast::Off, ..POLICY };
    for (policy, features) in [(off, MODERN), (POLICY, tlbkit::Features::default())] {
        let world = World::with_broadcast(policy, &[features; 2], 8);
        let space = world.space();
        world.map(space, USER);
        (0..2).for_each(|cpu| world.switch(cpu, space));
        assert_eq!(world.cpu(0).share_pcid(world.at(space)), None);
        world.forget_logs();
        world.unmap(0, space, &[USER]);
        assert!(executed(world).contains(&Did::Ipi(1)));
    }
}

#[test]
fn c_71_a_space_that_found_no_pcid_moves_once_one_was_given_back() {
    let world = World::with_broadcast(Policy { isolation: Isolation::On, ..POLICY }, &[MODERN], 8);
    let move_next = || {
        let space = world.space();
        world.cpu(0).share_pcid(world.at(space)).map(|pcid| (space, pcid))
    };
    let moved: Vec<_> = std::iter::from_fn(move_next).collect();
    let (left, (last, pcid)) = (moved.len(), moved[moved.len() - 1]);
    world.switch(0, last);
    world.forget_logs();
    world.exit_to_user(0);
    assert_eq!(cr3s(&world.log(0)), [Cr3::keeping(PhysAddr(root_of(last).0 + 4096), pcid.user_half())], "owes nothing");
    world.load_kernel(0);
    assert_eq!(world.destroy(0, last), Destroyed::Now);
    assert_eq!(world.cpu(0).share_pcid(world.at(left)), Some(pcid));
}
