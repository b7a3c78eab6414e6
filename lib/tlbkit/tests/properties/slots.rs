//! Which slot a space gets and whether its entries are kept, against lists of what was used when.

use proptest::prelude::*;
use tlbkit::{CpuSetUpkeep, Policy, Tags};

use crate::machine::{USER, World, cr3s};

/// More than the hints can tell apart, so that some fall upon each other.
const SPACES: usize = 40;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// CPU 0 switches to the space.
    Switch(usize),
    /// CPU 1, which runs nothing, revokes a page of it.
    Revoke(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few spaces most of the time, so that slots are met again.
    let space = || prop_oneof![4 => 0usize..5, 1 => 0..SPACES, 1 => Just(32), 1 => Just(33)];
    prop::collection::vec(prop_oneof![4 => space().prop_map(Step::Switch), 1 => space().prop_map(Step::Revoke)], 1..80)
}

fn tags() -> impl Strategy<Value = Tags> {
    prop_oneof![(1u8..=15).prop_map(Tags::RoundRobin), (1u8..=15).prop_map(Tags::LeastRecent)]
}

/// What a CPU's slots hold, in the plainest words.
struct Reference {
    tags: Tags,
    /// For each slot its space, whether it is current, and when it was last used.
    slots: Vec<(Option<usize>, bool, usize)>,
    next: usize,
    now: usize,
}

impl Reference {
    fn new(tags: Tags, count: usize) -> Self {
        Self { tags, slots: vec![(None, false, 0); count], next: 0, now: 0 }
    }

    /// The slot, and whether its entries are kept.
    fn switch(&mut self, space: usize) -> (usize, bool) {
        let held = self.slots.iter().position(|slot| slot.0 == Some(space));
        let slot = held.unwrap_or_else(|| self.recycle());
        let is_kept = held.is_some() && self.slots[slot].1;
        self.now += 1;
        self.slots[slot] = (Some(space), true, self.now);
        (slot, is_kept)
    }

    fn recycle(&mut self) -> usize {
        if matches!(self.tags, Tags::LeastRecent(_)) {
            return (0..self.slots.len()).min_by_key(|&slot| self.slots[slot].2).expect("at least one");
        }
        let slot = self.next;
        self.next = (slot + 1) % self.slots.len();
        slot
    }

    fn revoke(&mut self, space: usize) {
        for slot in self.slots.iter_mut().filter(|slot| slot.0 == Some(space)) {
            slot.1 = false;
        }
    }
}

proptest! {
    #![proptest_config(crate::config())]

    /// INV-8 and INV-12: the slot's PCID, and no-flush exactly when the slot is current.
    #[test]
    fn slots_are_recycled_as_the_policy_says(tags in tags(), steps in steps()) {
        let policy = Policy { tags, cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() };
        let world = World::new(policy, 2);
        for _ in 0..SPACES {
            world.map(world.space(), USER);
        }
        let mut reference = Reference::new(tags, policy.asids());
        let mut loaded = None;
        for step in steps {
            world.forget_logs();
            match step {
                Step::Revoke(space) => {
                    world.unmap(1, space, &[USER]);
                    world.map(space, USER);
                    if loaded != Some(space) {
                        reference.revoke(space);
                    }
                }
                Step::Switch(space) if loaded == Some(space) => {
                    world.switch(0, space);
                    prop_assert!(cr3s(&world.log(0)).is_empty(), "it is loaded");
                }
                Step::Switch(space) => {
                    let (slot, is_kept) = reference.switch(space);
                    world.switch(0, space);
                    let loads: Vec<_> =
                        cr3s(&world.log(0)).iter().map(|cr3| (usize::from(cr3.pcid().0), cr3.keeps())).collect();
                    prop_assert_eq!(loads, [(slot + 1, is_kept)]);
                    prop_assert!(world.touch(0, USER).is_some());
                    loaded = Some(space);
                }
            }
        }
    }
}
