//! The gather: what goes out as which request, and that frames come out only after it.

use std::cell::Cell;

use tlbkit::VirtAddr;
use tlbkit::{
    Batching, Compare, FamilyShift, History, Invpcid, LargePageWalk, Policy, RangeRule, Reason, Scope, Stride,
    TlbGather, Translations,
};

use crate::machine::{BATCHINGS, Did, KERNEL, Owner, USER, World, cr3s, invlpgs};

const CEILING: RangeRule = RangeRule::Ceiling { pages: 33, compare: Compare::Above };

/// One CPU that runs one space.
fn alone(batching: Batching, range: RangeRule) -> &'static World {
    let world = World::new(Policy { history: History { batching, ..History::NONE }, range, ..Policy::default() }, 1);
    let space = world.space();
    world.switch(0, space);
    world.enter_kernel(0);
    world.forget_logs();
    world
}

/// What flushing `pages` pages of `stride` from `USER` on does.
fn flushed(world: &'static World, pages: u64, stride: Stride) -> Vec<u64> {
    let mut gather = TlbGather::new(Translations::OfSpace(world.at(0)), Vec::<u8>::new());
    gather.range(&world.cpu(0), VirtAddr(USER), pages, stride, Scope::NonGlobal, Reason::RemovePte);
    let frames = gather.flush(&world.cpu(0)).into_frames();
    assert!(frames.is_empty());
    let log = world.log(0);
    assert_eq!(invlpgs(&log).is_empty(), cr3s(&log).iter().any(|cr3| !cr3.keeps()), "by page or all, never both");
    invlpgs(&log)
}

#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn a_packet_names_six_pages_and_the_seventh_makes_it_everything() {
    let world = alone(Batching::Packet(6), CEILING);
    let pages = |n: u64| (0..n).map(|page| USER + page * 4096).collect::<Vec<_>>();
    assert_eq!(flushed(world, 6, Stride::Page4K), pages(6));
    assert_eq!(flushed(world, 7, Stride::Page4K), []);
    let mut gather = world.gather(Owner::Space(0));
    for va in pages(6).into_iter().cycle().take(18) {
        gather.page(&world.cpu(0), VirtAddr(va), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
    }
    world.finish(0, gather);
    assert_eq!(invlpgs(&world.log(0)), pages(6), "the same page takes one place");
}

#[test]
fn inv_11_a_collapsed_packet_or_range_keeps_the_global_scope() {
    for &batching in BATCHINGS {
        let world = alone(batching, CEILING);
        world.map_kernel(KERNEL);
        world.map(0, USER);
        assert!(world.touch(0, KERNEL).is_some() && world.touch(0, USER).is_some());
        world.enter_kernel(0);
        let mut gather = world.gather(Owner::Space(0));
        world.unhook(0, &mut gather, Owner::Kernel, &[KERNEL]);
        for page in 1..40 {
            gather.page(
                &world.cpu(0),
                VirtAddr(USER + page * 4096),
                Stride::Page4K,
                Scope::NonGlobal,
                Reason::RemovePte,
            );
        }
        world.unhook(0, &mut gather, Owner::Space(0), &[USER]);
        world.finish(0, gather);
        assert_eq!((world.touch(0, KERNEL), world.touch(0, USER)), (None, None), "{batching:?}");
    }
}

#[test]
fn the_ceiling_is_compared_in_pages_of_the_stride() {
    for stride in [Stride::Page4K, Stride::Page2M, Stride::Page1G] {
        let world = alone(Batching::Range, CEILING);
        let expected: Vec<u64> = (0..33).map(|n| USER + n * stride.bytes()).collect();
        assert_eq!(flushed(world, 33, stride), expected, "{stride:?}");
        assert_eq!(flushed(world, 34, stride), [], "{stride:?}");
    }
}

#[test]
fn the_ceiling_can_be_moved_while_the_machine_runs() {
    let world = alone(Batching::Range, CEILING);
    for (ceiling, pages, one_by_one) in [(2, 3, 0), (2, 2, 2), (0, 1, 0), (100, 100, 100), (u32::MAX, 34, 34)] {
        world.tlb.knobs().set_ceiling(ceiling);
        assert_eq!(flushed(world, pages, Stride::Page4K).len(), one_by_one, "{ceiling} {pages}");
    }
}

#[test]
fn no_ceiling_lets_more_go_page_by_page_than_any_tlb_holds() {
    const MOST: u64 = 1 << 18;
    for compare in [Compare::Above, Compare::AtLeast] {
        let world = alone(Batching::Range, RangeRule::Ceiling { pages: u32::MAX, compare });
        let by_flush_range = |pages: u32| {
            let why = Reason::WriteProtect;
            world.cpu(0).flush_range(world.at(0), VirtAddr(USER), pages, Stride::Page4K, why);
            invlpgs(&world.log(0)).len()
        };
        for _ in 0..2 {
            assert_eq!(flushed(world, MOST, Stride::Page4K).len(), MOST as usize, "{compare:?}");
            assert_eq!(flushed(world, MOST + 1, Stride::Page4K), [], "{compare:?}");
            assert_eq!([0, 1].map(|more| by_flush_range(MOST as u32 + more)), [MOST as usize, 0], "{compare:?}");
            world.tlb.knobs().set_ceiling(u32::MAX);
        }
    }
}

#[test]
fn a_range_covers_all_that_was_named_in_the_smallest_stride() {
    let world = alone(Batching::Range, CEILING);
    let mut gather = world.gather(Owner::Space(0));
    for va in [USER + 5 * 4096 + 12, USER + 2 * 4096] {
        gather.page(&world.cpu(0), VirtAddr(va), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
    }
    world.finish(0, gather);
    assert_eq!(invlpgs(&world.log(0)), [2, 3, 4, 5].map(|page| USER + page * 4096));
    let mut gather = world.gather(Owner::Space(0));
    gather.page(&world.cpu(0), VirtAddr(USER), Stride::Page2M, Scope::NonGlobal, Reason::RemovePte);
    gather.page(&world.cpu(0), VirtAddr(USER + (2 << 20)), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
    world.finish(0, gather);
    assert_eq!(invlpgs(&world.log(0)), [], "513 small pages are above the ceiling");
}

#[test]
fn the_last_page_of_all_is_a_page_like_any_other() {
    let world = alone(Batching::Range, CEILING);
    let mut gather = world.gather(Owner::Kernel);
    gather.page(&world.cpu(0), VirtAddr(u64::MAX), Stride::Page4K, Scope::Global, Reason::KernelRemove);
    assert!(!gather.is_empty());
    world.finish(0, gather);
    assert_eq!(invlpgs(&world.log(0)), [!4095]);
}

#[test]
fn a_range_past_the_top_of_all_addresses_is_flushed_up_to_there() {
    for &batching in BATCHINGS.iter().filter(|&&one| one != Batching::None) {
        let world = alone(batching, CEILING);
        let named = |va: u64, pages: u64| {
            let mut gather = world.gather(Owner::Kernel);
            gather.range(&world.cpu(0), VirtAddr(va), pages, Stride::Page4K, Scope::NonGlobal, Reason::KernelRemove);
            let is_empty = gather.is_empty();
            world.finish(0, gather);
            (is_empty, world.log(0))
        };
        let (is_empty, log) = named(!0xfff, 2);
        assert_eq!((is_empty, invlpgs(&log)), (false, vec![!0xfff]), "{batching:?}");
        for pages in [u64::MAX, 1 << 52] {
            let (is_empty, log) = named(USER, pages);
            assert!(!is_empty && log.contains(&Did::Invpcid(Invpcid::AllAndGlobals)), "{batching:?} {pages:#x}");
        }
        let (is_empty, log) = named(0, 0);
        assert!(is_empty && log.is_empty(), "{batching:?}: nothing was named");
    }
}

#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn the_3_13_rule_asks_for_a_walk_below_its_limit_only() {
    let rule = RangeRule::FamilyShift(FamilyShift { shift: 1, entries: 512, walk: LargePageWalk::Walk });
    let world = alone(Batching::Range, rule);
    let wants = |pages: u64| {
        let mut gather = TlbGather::new(Translations::OfSpace(world.at(0)), Vec::<u8>::new());
        assert!(!gather.wants_large_page_walk(&world.cpu(0)));
        gather.set_active_pages(100);
        gather.range(&world.cpu(0), VirtAddr(USER), pages, Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
        let wants = gather.wants_large_page_walk(&world.cpu(0));
        gather.flush_everything();
        let _frames = gather.flush(&world.cpu(0));
        assert_eq!(invlpgs(&world.log(0)), [], "a large page was found");
        wants
    };
    assert_eq!([wants(50), wants(51)], [true, false]);
    let world = alone(Batching::Range, CEILING);
    let mut gather = world.gather(Owner::Space(0));
    gather.page(&world.cpu(0), VirtAddr(USER), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
    assert!(!gather.wants_large_page_walk(&world.cpu(0)), "another rule does not");
}

#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn without_batching_each_page_is_flushed_when_it_is_named() {
    let world = alone(Batching::None, CEILING);
    let mut gather = world.gather(Owner::Space(0));
    for page in 0..3 {
        gather.page(&world.cpu(0), VirtAddr(USER + page * 4096), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
        assert_eq!(invlpgs(&world.log(0)), [USER + page * 4096]);
        assert!(gather.is_empty());
    }
    let before = world.at(0).generation();
    world.finish(0, gather);
    assert_eq!((world.log(0), world.at(0).generation()), (vec![], before), "nothing is left to do");
}

#[test]
fn a_gather_in_which_nothing_was_named_flushes_nothing() {
    let world = alone(Batching::Range, CEILING);
    world.finish(0, world.gather(Owner::Space(0)));
    assert_eq!(world.log(0), []);
    let mut gather = world.gather(Owner::Space(0));
    gather.tables_freed();
    world.finish(0, gather);
    assert!(cr3s(&world.log(0)).iter().any(|cr3| !cr3.keeps()), "a table alone is reason enough");
}

#[test]
fn inv_1_a_full_flush_needs_no_page_named() {
    for &batching in BATCHINGS {
        let world = alone(batching, CEILING);
        let before = world.at(0).generation();
        let mut gather = world.gather(Owner::Space(0));
        gather.flush_everything();
        world.finish(0, gather);
        assert!(cr3s(&world.log(0)).iter().any(|cr3| !cr3.keeps()), "{batching:?}");
        assert!(world.at(0).generation() > before, "{batching:?}: other CPUs must see it");
    }
}

/// A frame that knows whether it was let go.
struct Frame<'c>(&'c Cell<u32>);

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
/// INV-9 and INV-1 by behaviour; the type's half is in the compile-fail examples of `gather.rs`.
fn inv_9_a_gather_that_is_dropped_leaks_and_inv_1_a_flushed_one_gives_back() {
    let world = alone(Batching::Range, CEILING);
    let freed = Cell::new(0);
    for (keeps, expected) in [(Some(()), 0), (None, 1)] {
        let mut gather = TlbGather::new(Translations::OfSpace(world.at(0)), Vec::new());
        gather.unmap(&world.cpu(0), VirtAddr(USER), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte, Frame(&freed));
        if keeps.is_some() {
            drop(gather);
        } else {
            let flushed = gather.flush(&world.cpu(0));
            assert_eq!((freed.get(), invlpgs(&world.log(0))), (0, vec![USER]), "flushed before it is freed");
            drop(flushed.into_frames());
        }
        assert_eq!(freed.get(), expected);
    }
}

#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn inv_1_without_batching_frames_still_wait_for_the_end() {
    let world = alone(Batching::None, CEILING);
    world.map(0, USER);
    world.touch(0, USER);
    world.enter_kernel(0);
    let mut gather = world.gather(Owner::Space(0));
    world.unhook(0, &mut gather, Owner::Space(0), &[USER]);
    assert!(world.log(0).contains(&Did::Invlpg(USER)));
    world.finish(0, gather);
    assert_eq!(world.touch(0, USER), None);
}

#[test]
fn inv_1_a_gather_that_is_used_again_flushes_each_time_and_then_holds_nothing() {
    let world = alone(Batching::Range, CEILING);
    let mut gather = TlbGather::new(Translations::OfSpace(world.at(0)), Vec::new());
    for (round, pages) in [2_u64, 1, 0].into_iter().enumerate() {
        let named: Vec<_> = (0..pages).map(|page| USER + page * 4096).collect();
        for &va in &named {
            gather.unmap(&world.cpu(0), VirtAddr(va), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte, round);
        }
        assert_eq!(gather.held() as u64, pages);
        let mut freed = Vec::new();
        gather.flush_and_reuse(&world.cpu(0), |frames| freed.append(frames));
        assert_eq!(freed, vec![round; named.len()]);
        assert_eq!((gather.held(), gather.is_empty()), (0, true));
        let log = world.log(0);
        assert_eq!(invlpgs(&log), named, "what was flushed in an earlier round is not flushed again");
        world.forget_logs();
    }
}
