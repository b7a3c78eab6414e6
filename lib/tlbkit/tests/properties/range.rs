//! When a range goes page by page and when as everything: the rule, the knob, and what the CPUs then execute.

use proptest::prelude::*;
use tlbkit::{Compare, Cr3, FamilyShift, LargePageWalk, Policy, RangeRule, Reason, Stride, VirtAddr};

use crate::machine::{Did, USER, World, cr3s, invlpgs};

fn strides() -> impl Strategy<Value = Stride> {
    prop::sample::select(vec![Stride::Page4K, Stride::Page2M, Stride::Page1G])
}

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn c_81_a_ceiling_counts_pages(limit in any::<u32>(), pages in any::<u64>(), near in 0u64..3) {
        for pages in [pages, (u64::from(limit) + near).saturating_sub(1)] {
            let rule = |compare| RangeRule::Ceiling { pages: limit, compare };
            prop_assert_eq!(rule(Compare::Above).is_everything(pages, 0), pages > u64::from(limit));
            prop_assert_eq!(rule(Compare::AtLeast).is_everything(pages, 0), pages >= u64::from(limit));
        }
    }

    #[test]
    fn a_family_shift_halves_the_active_entries_that_often(
        (shift, entries) in (0i8..12, any::<u16>()),
        (pages, active) in (0u64..70_000, prop_oneof![0u64..70_000, Just(u64::MAX)]),
    ) {
        let rule = |shift| RangeRule::FamilyShift(FamilyShift { shift, entries, walk: LargePageWalk::Skip });
        let mut limit = active.min(u64::from(entries));
        (0..shift).for_each(|_| limit /= 2);
        prop_assert_eq!(rule(shift).is_everything(pages, active), pages > limit);
        prop_assert!(rule(-1).is_everything(pages, active), "a negative shift is always everything");
    }

    /// Both CPUs run the space: each executes the range's pages in order, or one flushing CR3 write.
    #[test]
    fn c_81_the_knob_decides_what_is_executed(
        knob in prop::option::of(prop_oneof![Just(0u32), 1u32..40, Just(u32::MAX)]),
        (limit, pages) in (0u32..40, 1u32..40),
        stride in strides(),
    ) {
        let range = RangeRule::Ceiling { pages: limit, compare: Compare::Above };
        let world = World::new(Policy { range, ..Policy::default() }, 2);
        let space = world.space();
        (0..2).for_each(|cpu| world.switch(cpu, space));
        if let Some(knob) = knob {
            world.tlb.knobs().set_ceiling(knob);
        }
        world.forget_logs();
        world.cpu(0).flush_range(world.at(space), VirtAddr(USER), pages, stride, Reason::WriteProtect);
        let is_everything = pages > knob.unwrap_or(limit);
        let single = (0..u64::from(pages)).map(|page| USER + page * stride.bytes());
        for log in [world.log(0), world.log(1)] {
            let expected: Vec<u64> = single.clone().filter(|_| !is_everything).collect();
            prop_assert_eq!(invlpgs(&log), expected);
            let flushing = cr3s(&log).into_iter().filter(|cr3: &Cr3| !cr3.keeps()).count();
            prop_assert_eq!(flushing, usize::from(is_everything));
            prop_assert!(!log.iter().any(|did| matches!(did, Did::Invpcid(_) | Did::TogglePge)));
        }
    }
}
