//! What a gather makes of many requests: single pages, one range, or everything, and never a weaker scope (INV-11).

use proptest::prelude::*;
use tlbkit::{Batching, Compare, History, Invpcid, MAX_PAGES, Policy, RangeRule, Reason, Scope, Stride, VirtAddr};

use crate::machine::{Did, Owner, World};

const CEILING: u64 = 33;
/// Pages above the lowest that a request's list can name.
const SPAN_PAGES: u64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
struct Named {
    va: u64,
    pages: u64,
    stride: Stride,
    scope: Scope,
}

fn named() -> impl Strategy<Value = Named> {
    let near = (0u64..48).prop_map(|page| page << 12);
    let far = (0u64..4).prop_map(|part| part << 44);
    let va = (prop_oneof![8 => near, 1 => far], 0u64..4096).prop_map(|(page, within)| page + within);
    let stride = prop_oneof![6 => Just(Stride::Page4K), 1 => Just(Stride::Page2M), 1 => Just(Stride::Page1G)];
    let scope = prop_oneof![8 => Just(Scope::NonGlobal), 1 => Just(Scope::Global)];
    let pages = prop_oneof![4 => Just(1u64), 1 => 1u64..40];
    (va, pages, stride, scope).prop_map(|(va, pages, stride, scope)| Named { va, pages, stride, scope })
}

/// What one CPU drops.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Effect {
    Pages(Vec<u64>),
    Everything,
    EverythingAndGlobals,
}

fn everything(named: &[Named]) -> Effect {
    let is_global = named.iter().any(|one| one.scope == Scope::Global);
    if is_global { Effect::EverythingAndGlobals } else { Effect::Everything }
}

fn first(one: &Named) -> u64 {
    one.va / one.stride.bytes() * one.stride.bytes()
}

/// From the lowest to the highest byte, in steps of the smallest stride.
fn as_range(named: &[Named]) -> Effect {
    let start = named.iter().map(first).min().expect("something is named");
    let end = named.iter().map(|one| first(one) + one.pages * one.stride.bytes()).max().expect("as above");
    let step = named.iter().map(|one| one.stride.bytes()).min().expect("as above");
    let pages = (end - start).div_ceil(step);
    if pages > CEILING {
        return everything(named);
    }
    Effect::Pages((0..pages).map(|page| start + page * step).collect())
}

/// Each address once, in the order of naming, as long as they fit.
fn as_packet(named: &[Named], limit: usize) -> Effect {
    let mut list = Vec::new();
    for va in named.iter().flat_map(|one| (0..one.pages).map(|page| first(one) + page * one.stride.bytes())) {
        if !list.contains(&va) {
            list.push(va);
        }
    }
    if list.len() > limit.min(MAX_PAGES) { everything(named) } else { Effect::Pages(list) }
}

/// A list that spans too much cannot be sent: the other CPU flushes everything.
fn as_sent(effect: &Effect, named: &[Named]) -> Effect {
    let Effect::Pages(list) = effect else { return effect.clone() };
    let span = list.iter().max().zip(list.iter().min()).map_or(0, |(highest, lowest)| highest - lowest);
    if span / 4096 >= SPAN_PAGES { everything(named) } else { effect.clone() }
}

/// What the log of a CPU amounts to.
fn effect_of(log: &[Did]) -> Effect {
    if log.contains(&Did::Invpcid(Invpcid::AllAndGlobals)) {
        return Effect::EverythingAndGlobals;
    }
    if log.iter().any(|did| matches!(did, Did::Cr3(cr3) if !cr3.keeps())) {
        return Effect::Everything;
    }
    Effect::Pages(crate::machine::invlpgs(log))
}

/// CPU 0 gathers what is named, and flushes; both CPUs run the space. What each executed.
fn gather(batching: Batching, named: &[Named]) -> [Vec<Did>; 2] {
    let range = RangeRule::Ceiling { pages: CEILING as u32, compare: Compare::Above };
    let world = World::new(Policy { history: History { batching, ..History::NONE }, range, ..Policy::default() }, 2);
    let space = world.space();
    (0..2).for_each(|cpu| world.switch(cpu, space));
    world.forget_logs();
    let mut gather = world.gather(Owner::Space(space));
    for one in named {
        gather.range(&world.cpu(0), VirtAddr(one.va), one.pages, one.stride, one.scope, Reason::RemovePte);
    }
    world.finish(0, gather);
    [world.log(0), world.log(1)]
}

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn inv_11_a_range_covers_all_or_becomes_everything(named in prop::collection::vec(named(), 1..8)) {
        let expected = as_range(&named);
        for log in gather(Batching::Range, &named) {
            prop_assert_eq!(effect_of(&log), expected.clone());
        }
    }

    #[test]
    fn inv_11_a_packet_lists_each_page_once_or_becomes_everything(
        limit in 0u8..20,
        named in prop::collection::vec(named(), 1..8),
    ) {
        let expected = as_packet(&named, usize::from(limit));
        let [here, there] = gather(Batching::Packet(limit), &named);
        prop_assert_eq!(effect_of(&here), expected.clone());
        prop_assert_eq!(effect_of(&there), as_sent(&expected, &named));
    }

    #[test]
    fn without_batching_each_is_flushed_as_it_is_named(named in prop::collection::vec(named(), 1..4)) {
        let single: Vec<Effect> = named.iter().map(|one| as_range(&[*one])).collect();
        for log in gather(Batching::None, &named) {
            let pages: Vec<u64> = single
                .iter()
                .flat_map(|effect| if let Effect::Pages(list) = effect { list.clone() } else { Vec::new() })
                .collect();
            let wholes = single.iter().filter(|effect| !matches!(effect, Effect::Pages(_))).count();
            let is_whole = |did: &&Did| match did {
                Did::Cr3(cr3) => !cr3.keeps(),
                did => **did == Did::Invpcid(Invpcid::AllAndGlobals),
            };
            prop_assert_eq!(crate::machine::invlpgs(&log), pages);
            prop_assert_eq!(log.iter().filter(is_whole).count(), wholes);
        }
    }
}
