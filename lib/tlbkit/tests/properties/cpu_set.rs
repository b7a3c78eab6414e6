//! The set of CPUs is a set.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{AddressSpace, AtomicCpuSet, CpuId};

/// Relaxed: one thread.
const ORDER: Ordering = Ordering::Relaxed;

/// CPUs that a word names.
const PER_WORD: u32 = if cfg!(narrow_sets) { 2 } else { 64 };

#[derive(Clone, Copy, Debug)]
enum Change {
    Add,
    Remove,
}

fn changes(cpus: u32) -> impl Strategy<Value = Vec<(Change, u32)>> {
    prop::collection::vec((prop::sample::select(vec![Change::Add, Change::Remove]), 0..cpus), 0..200)
}

fn members(set: &AtomicCpuSet<'_>) -> BTreeSet<u32> {
    let bits = |(index, word): (usize, &AtomicU64)| {
        let bits = word.load(ORDER);
        (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| index as u32 * PER_WORD + bit)
    };
    set.words().iter().enumerate().flat_map(bits).collect()
}

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn c_07_members_are_those_who_joined_and_did_not_leave(
        (cpus, changes) in (1u32..400).prop_flat_map(|cpus| (Just(cpus), changes(cpus))),
    ) {
        let words: Vec<AtomicU64> =
            (0..AddressSpace::set_words(cpus as usize)).map(|_| AtomicU64::new(0)).collect();
        let (set, mut reference) = (AtomicCpuSet::new(&words), BTreeSet::new());
        for (change, cpu) in changes {
            match change {
                Change::Add => {
                    let word = set.add(CpuId(cpu), ORDER);
                    prop_assert_eq!(word >> (cpu % PER_WORD) & 1 != 0, !reference.insert(cpu), "what it held before");
                }
                Change::Remove => {
                    set.remove(CpuId(cpu), ORDER);
                    reference.remove(&cpu);
                }
            }
            prop_assert_eq!(set.contains(CpuId(cpu), ORDER), reference.contains(&cpu));
        }
        prop_assert_eq!(members(&set), reference);
    }

    #[test]
    fn a_set_has_a_bit_for_each_cpu_and_no_word_too_many(cpus in 1usize..10_000) {
        let words = AddressSpace::set_words(cpus);
        let per_word = PER_WORD as usize;
        prop_assert!(words * per_word >= cpus && (words - 1) * per_word < cpus);
    }
}
