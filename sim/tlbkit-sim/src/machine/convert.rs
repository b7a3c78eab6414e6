//! Turns the numbers of a machine file into the translation hardware of one CPU.

use super::model::{Guest, Index, Machine, ReplacementPolicy, Size, Switch, TlbArray};
use super::quantity::Quantity;
use crate::mmu::{self, ArrayConfig, Fracturing, Levels, MmuConfig, PageSize, PathCaches, TranslationCosts};

impl Machine {
    /// What [`mmu::Mmu::new`] needs.
    #[must_use]
    pub fn mmu(&self) -> MmuConfig {
        let fractured = self.guest.as_ref().is_some_and(|guest| guest.fracturing == Switch::On);
        MmuConfig {
            l1: self.tlb.l1.iter().map(array).collect(),
            stlb: self.tlb.stlb.iter().map(array).collect(),
            path: PathCaches {
                pml4e: self.psc.pml4e.count(),
                pdpte: self.psc.pdpte.count(),
                pde: self.psc.pde.count(),
            },
            pcid: self.features.pcid,
            pge: self.features.pge,
            stlb_pcids: self.tlb.stlb_pcids.as_ref().map(Quantity::count),
            l1_keeps_pcids: self.tlb.l1_keeps_pcids.as_ref().map(Quantity::count),
            fracturing: if fractured { Fracturing::On } else { Fracturing::Off },
            levels: Levels::Four,
            costs: self.translation_costs(),
        }
    }

    fn translation_costs(&self) -> TranslationCosts {
        let of_guest = |get: fn(&Guest) -> &Quantity| self.guest.as_ref().map_or(0.0, |guest| get(guest).value);
        TranslationCosts {
            stlb_dependent_cycles: self.cycles.stlb_hit_dependent.value,
            stlb_independent_cycles: self.cycles.stlb_hit_independent.value,
            walk_start_cycles: self.walk.start_cycles.value,
            leaf_hot_cycles: self.walk.leaf_hot_cycles.value,
            leaf_cold_cycles: self.walk.leaf_cold_cycles.value,
            upper_hot_cycles: self.walk.upper_hot_cycles.value,
            upper_cold_cycles: self.walk.upper_cold_cycles.value,
            overlap_percent: self.walk.overlap_percent.value,
            hot_lines: self.walk.hot_lines.count(),
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
            Index::Linear => mmu::Index::Linear,
            Index::Xor7 => mmu::Index::Xor7,
        },
        policy: match array.policy {
            ReplacementPolicy::Lru => mmu::ReplacementPolicy::Lru,
            ReplacementPolicy::TreePlru => mmu::ReplacementPolicy::TreePlru,
            ReplacementPolicy::RotatingPlru4 => mmu::ReplacementPolicy::RotatingPlru4,
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
