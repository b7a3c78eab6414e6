//! Turns the numbers of a machine file into the translation hardware of one CPU.

use tlbkit_machine::{Guest, Index, Machine, Quantity, ReplacementPolicy, Size, Switch, TlbArray};

use super::config::{self, ArrayConfig, Fracturing, Levels, MmuConfig, PathCaches, TranslationCosts};
use super::entry::PageSize;

impl MmuConfig {
    /// The translation hardware of each CPU of `machine`.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        let fractured = machine.guest.as_ref().is_some_and(|guest| guest.fracturing == Switch::On);
        Self {
            l1: machine.tlb.l1.iter().map(array).collect(),
            stlb: machine.tlb.stlb.iter().map(array).collect(),
            path: PathCaches {
                pml4e: machine.psc.pml4e.count(),
                pdpte: machine.psc.pdpte.count(),
                pde: machine.psc.pde.count(),
            },
            pcid: machine.features.pcid,
            pge: machine.features.pge,
            stlb_pcids: machine.tlb.stlb_pcids.as_ref().map(Quantity::count),
            l1_keeps_pcids: machine.tlb.l1_keeps_pcids.as_ref().map(Quantity::count),
            fracturing: if fractured { Fracturing::On } else { Fracturing::Off },
            levels: Levels::Four,
            costs: TranslationCosts::of(machine),
        }
    }
}

impl TranslationCosts {
    fn of(machine: &Machine) -> Self {
        let of_guest = |get: fn(&Guest) -> &Quantity| machine.guest.as_ref().map_or(0.0, |guest| get(guest).value);
        Self {
            stlb_dependent_cycles: machine.cycles.stlb_hit_dependent.value,
            stlb_independent_cycles: machine.cycles.stlb_hit_independent.value,
            walk_start_cycles: machine.walk.start_cycles.value,
            leaf_hot_cycles: machine.walk.leaf_hot_cycles.value,
            leaf_cold_cycles: machine.walk.leaf_cold_cycles.value,
            upper_hot_cycles: machine.walk.upper_hot_cycles.value,
            upper_cold_cycles: machine.walk.upper_cold_cycles.value,
            overlap_percent: machine.walk.overlap_percent.value,
            hot_lines: machine.walk.hot_lines.count(),
            nested_references: of_guest(|guest| &guest.references_per_reference),
            nested_reference_cycles: of_guest(|guest| &guest.reference_cycles),
        }
    }
}

fn array(array: &TlbArray) -> ArrayConfig {
    ArrayConfig {
        holds: array.holds.iter().copied().map(PageSize::from).collect(),
        sets: array.sets.count(),
        ways: array.ways.count(),
        index: match array.index {
            Index::Linear => config::Index::Linear,
            Index::Xor7 => config::Index::Xor7,
        },
        policy: match array.policy {
            ReplacementPolicy::Lru => config::ReplacementPolicy::Lru,
            ReplacementPolicy::TreePlru => config::ReplacementPolicy::TreePlru,
            ReplacementPolicy::RotatingPlru4 => config::ReplacementPolicy::RotatingPlru4,
        },
    }
}

impl From<Size> for PageSize {
    fn from(size: Size) -> Self {
        match size {
            Size::Small => Self::Small,
            Size::Large => Self::Large,
            Size::Huge => Self::Huge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu::Mmu;

    #[test]
    fn every_machine_of_the_program_can_be_built() {
        for name in Machine::names() {
            let _ = Mmu::new(MmuConfig::of(&Machine::builtin(name).unwrap()));
        }
    }

    #[test]
    fn what_a_file_says_arrives_where_it_belongs() {
        let of = |name| MmuConfig::of(&Machine::builtin(name).unwrap());
        let config = of("skylake-laptop-kvm");
        assert_eq!((config.stlb_pcids, config.l1_keeps_pcids), (Some(4), Some(0)));
        let shared = config.stlb.iter().find(|array| array.holds.contains(&PageSize::Small)).unwrap();
        assert_eq!(shared.entries(), 1536);
        let fracturing = ["recent-vm-fractured", "recent-vm"].map(|name| of(name).fracturing);
        assert_eq!(fracturing, [Fracturing::On, Fracturing::Off]);
    }
}
