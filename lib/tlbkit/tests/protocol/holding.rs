//! No frame comes out of a gather before what led to it is flushed, whether the caller named that or not.

use tlbkit::{Batching, History, Policy, Reason, Scope, Stride, Tables, VirtAddr};

use crate::machine::{BATCHINGS, Owner, USER, World, cr3s, invlpgs};

/// Two CPUs that run one space and hold its first two pages; CPU 0 is in the kernel.
fn pair(batching: Batching) -> &'static World {
    let world = World::new(Policy { history: History { batching, ..History::NONE }, ..Policy::default() }, 2);
    let space = world.space();
    for va in [USER, USER + 4096] {
        world.map(space, va);
    }
    for cpu in 0..2 {
        world.switch(cpu, space);
        assert!(world.touch(cpu, USER).is_some() && world.touch(cpu, USER + 4096).is_some());
        world.enter_kernel(cpu);
    }
    world.forget_logs();
    world
}

fn is_flushed_whole(world: &World, cpu: usize) -> bool {
    cr3s(&world.log(cpu)).iter().any(|cr3| !cr3.keeps())
}

#[test]
fn inv_1_a_frame_that_is_held_while_nothing_is_named_comes_out_flushed() {
    for &batching in BATCHINGS {
        let world = pair(batching);
        let mut gather = world.gather(Owner::Space(0));
        let page = world.memory.borrow_mut().unhook(Owner::Space(0), USER).unwrap();
        gather.hold(page.stamp);
        world.finish(0, gather); // its audit finds a stale entry on either CPU
        assert_eq!([0, 1].map(|cpu| is_flushed_whole(world, cpu)), [true; 2], "{batching:?}");
    }
}

#[test]
fn a_frame_that_is_held_beside_a_named_page_makes_no_flush_larger() {
    for &batching in BATCHINGS {
        for is_held_first in [true, false] {
            let world = pair(batching);
            let mut gather = world.gather(Owner::Space(0));
            let page = world.memory.borrow_mut().unhook(Owner::Space(0), USER).unwrap();
            let hold = |gather: &mut tlbkit::TlbGather<'_, &[tlbkit::sync::AtomicU64], Vec<usize>>, when| {
                if when == is_held_first {
                    gather.hold(page.stamp);
                }
            };
            hold(&mut gather, true);
            gather.page(&world.cpu(0), VirtAddr(USER), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
            hold(&mut gather, false);
            let before = world.at(0).generation();
            world.finish(0, gather);
            let generations = world.at(0).generation().number() - before.number();
            assert_eq!(generations, u64::from(batching != Batching::None), "{batching:?}: sent when it was named");
            for cpu in 0..2 {
                let log = world.log(cpu);
                assert_eq!((invlpgs(&log), cr3s(&log).len()), (vec![USER], 0), "{batching:?} CPU {cpu}");
            }
        }
    }
}

#[test]
fn inv_1_a_table_taken_out_with_its_entries_takes_them_along() {
    for &batching in BATCHINGS {
        let world = pair(batching);
        let mut gather = world.gather(Owner::Space(0));
        let table = {
            let mut memory = world.memory.borrow_mut();
            for va in [USER, USER + 4096] {
                let _never_reused = memory.unhook(Owner::Space(0), va);
            }
            memory.unhook_table(Owner::Space(0), USER).unwrap()
        };
        let before = world.at(0).generation().number();
        gather.unmap_table(&world.cpu(0), VirtAddr(USER), 512, table);
        world.finish(0, gather);
        assert_eq!(world.at(0).generation().number(), before + 1, "{batching:?}: one flush");
        assert_eq!([0, 1].map(|cpu| is_flushed_whole(world, cpu)), [true; 2], "{batching:?}: above the ceiling");
        assert_eq!([0, 1].map(|cpu| world.touch(cpu, USER + 4096)), [None; 2], "{batching:?}");
    }
}

#[test]
fn a_table_whose_entries_were_named_costs_one_page_more() {
    let world = pair(Batching::Range);
    world.quiet(1, |cpu, irqs| cpu.enter_lazy(irqs));
    world.forget_logs();
    let mut gather = world.gather(Owner::Space(0));
    let table = world.memory.borrow_mut().unhook_table(Owner::Space(0), USER).unwrap();
    world.unhook(0, &mut gather, Owner::Space(0), &[USER + 4096]);
    gather.unmap_table(&world.cpu(0), VirtAddr(USER), 0, table);
    world.finish(0, gather);
    assert_eq!(invlpgs(&world.log(0)), [USER, USER + 4096]);
    assert_eq!(cr3s(&world.log(1)).len(), 1, "it walked: it left the space");
}

/// The paths to a table are what is left where each of its entries was named before.
#[test]
fn c_27_a_range_of_no_pages_drops_the_path_to_a_table_that_it_frees() {
    let world = pair(Batching::Range);
    world.cpu(0).flush_range_with(world.at(0), VirtAddr(USER), 0, Stride::Page4K, Tables::Freed, Reason::FreeTable);
    assert_eq!([0, 1].map(|cpu| invlpgs(&world.log(cpu))), [vec![USER], vec![USER]]);
    world.load_kernel(1);
    world.forget_logs();
    let alone = world.cpu(0).flush_range_alone(world.at(0), VirtAddr(USER), 0, Stride::Page4K, Tables::Freed);
    assert_eq!((alone, invlpgs(&world.log(0))), (Ok(()), vec![USER]));
}
