//! What the library's own calls execute, counted in instructions: the same on every machine, so in a file of its own.
//!
//! The accesses among them that other CPUs can see are charged besides, by the cache-line model.

use std::sync::LazyLock;

use serde::Deserialize;
use tlbkit::{CpuSetUpkeep, Lazy, LazyReferences, Policy, Tags};

use super::quantity::NumberKind;

const FILE: &str = include_str!("../../../machines/software/tlbkit.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    instructions: Counted,
}

/// What was counted, under which policy: plain ones keep the CPU set at a switch, count no references and take slots in
/// turn.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counted {
    #[serde(rename = "kind")]
    _kind: NumberKind,
    #[serde(rename = "source")]
    _source: String,
    same_space: u32,
    enter_lazy: u32,
    enter_lazy_counted: u32,
    enter_kernel_tables: u32,
    leave_lazy: u32,
    leave_lazy_counted: u32,
    current_slot: u32,
    current_slot_counted: u32,
    current_slot_exact: u32,
    current_slot_by_use: u32,
    new_slot: u32,
    new_slot_counted: u32,
    new_slot_exact: u32,
    new_slot_by_use: u32,
    no_tags: u32,
    answer: u32,
}

static COUNTED: LazyLock<Counted> = LazyLock::new(|| {
    toml::from_str::<File>(FILE).expect("sim/machines/software/tlbkit.toml is part of the program").instructions
});

/// Instructions of each call under one policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Paths {
    /// A switch to the space that runs.
    pub(crate) same_space: u32,
    /// Going idle.
    pub(crate) enter_lazy: u32,
    /// Back to the space that was kept lazily.
    pub(crate) leave_lazy: u32,
    /// A switch that keeps the slot's entries.
    pub(crate) current_slot: u32,
    /// A switch that flushes. A stale slot, hardly dearer than a current one, is not told from a new one.
    pub(crate) new_slot: u32,
    /// An interrupt that carries out one request of one page.
    pub(crate) answer: u32,
}

impl Paths {
    pub(crate) fn of(policy: &Policy) -> Self {
        let c = &*COUNTED;
        let is_counted = policy.lazy_references == LazyReferences::Counted;
        let (current_slot, new_slot) = match (policy.tags, policy.cpu_set) {
            (Tags::Off, _) => (c.no_tags, c.no_tags),
            (_, CpuSetUpkeep::Exact) => (c.current_slot_exact, c.new_slot_exact),
            _ if is_counted => (c.current_slot_counted, c.new_slot_counted),
            _ => (c.current_slot, c.new_slot),
        };
        // Keeping the order of last use takes as many more whatever else the policy does. Those of places further back
        // are left out: which place a space has only the protocol knows.
        let (keeping, taking) = match policy.tags {
            Tags::LeastRecent(_) => (c.current_slot_by_use - c.current_slot, c.new_slot_by_use - c.new_slot),
            Tags::RoundRobin(_) | Tags::Off => (0, 0),
        };
        let (current_slot, new_slot) = (current_slot + keeping, new_slot + taking);
        let enter_lazy = match policy.lazy {
            Lazy::Off => c.enter_kernel_tables,
            _ if is_counted => c.enter_lazy_counted,
            _ => c.enter_lazy,
        };
        let leave_lazy = if is_counted { c.leave_lazy_counted } else { c.leave_lazy };
        Self { same_space: c.same_space, enter_lazy, leave_lazy, current_slot, new_slot, answer: c.answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_the_counts_of_what_it_does() {
        let of = |preset: &str| Paths::of(&Policy::preset(preset).unwrap());
        let c = &*COUNTED;
        let (ours, counting) = (of("tlbkit"), of("linux-6.18"));
        assert_eq!((ours.enter_lazy, ours.leave_lazy), (c.enter_lazy, c.leave_lazy));
        assert_eq!((ours.current_slot, ours.new_slot), (c.current_slot_by_use, c.new_slot_by_use));
        let in_turn = Paths::of(&Policy { tags: Tags::RoundRobin(6), ..Policy::preset("tlbkit").unwrap() });
        assert_eq!((in_turn.current_slot, in_turn.new_slot), (c.current_slot, c.new_slot));
        assert_eq!((counting.enter_lazy, counting.leave_lazy), (c.enter_lazy_counted, c.leave_lazy_counted));
        assert_eq!((counting.current_slot, counting.new_slot), (c.current_slot_counted, c.new_slot_counted));
        let old = of("linux-4.14");
        assert_eq!(old.enter_lazy, c.enter_kernel_tables);
        assert_eq!((old.current_slot, old.new_slot), (c.current_slot_exact, c.new_slot_exact));
        assert_eq!(of("netbsd-5.0").current_slot, c.no_tags);
    }
}
