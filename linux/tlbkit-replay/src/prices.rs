//! Prices from a machine file, with the bands that it gives them, and the little else that a replay asks of it.

use crate::bill::{Estimate, Prices};
use tlbkit_sim::machine::{Machine, Quantity, Switch, TlbArray};

impl Prices {
    /// Those of `machine`.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let cycles = &machine.cycles;
        let flush = of(&cycles.cr3_flush);
        let keep = cycles.cr3_keep.as_ref().map_or(flush, of);
        let page = of(&cycles.invlpg);
        let user_page = cycles.invpcid_address.as_ref().map_or(page, of);
        let everything = of(cycles.invpcid_all.as_ref().unwrap_or(&cycles.cr4_pge_toggle));
        let (near, far) = walk(machine);
        // Between never coming back to an entry and walking far for it.
        let walk = Estimate { low: 0.0, value: near / 2.0, high: far };
        let (deliver, interrupt) = (of(&cycles.ipi_deliver_same_socket), of(&cycles.interrupt_entry_exit));
        Self([keep, flush, page, user_page, everything, of(&cycles.ipi_send), deliver, interrupt, walk])
    }
}

fn of(quantity: &Quantity) -> Estimate {
    let [low, high] = quantity.band.unwrap_or([quantity.value; 2]);
    Estimate { low, value: quantity.value, high }
}

/// Cycles of a walk whose tables are in the nearest cache, and of one whose leaf is far.
fn walk(machine: &Machine) -> (f64, f64) {
    let walk = &machine.walk;
    let nested =
        machine.guest.as_ref().map_or(0.0, |guest| guest.references_per_reference.value * guest.reference_cycles.value);
    let near = walk.start_cycles.value + walk.leaf_hot_cycles.value + nested;
    let far = walk.start_cycles.value + walk.leaf_cold_cycles.value + walk.upper_hot_cycles.value + 2.0 * nested;
    (near.min(far), near.max(far))
}

/// What a machine can hold, and how fast it fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Entries of a CPU's TLB.
    pub(crate) entries: u64,
    /// Walks that fit into a nanosecond, if a program did nothing else.
    pub(crate) walks_per_ns: f64,
    /// One INVLPG empties the whole TLB (a guest whose host has small pages).
    pub(crate) is_fractured: bool,
}

impl Capacity {
    pub(crate) fn new(machine: &Machine) -> Self {
        let entries =
            |arrays: &[TlbArray]| -> f64 { arrays.iter().map(|array| array.sets.value * array.ways.value).sum() };
        Self {
            entries: (entries(&machine.tlb.l1) + entries(&machine.tlb.stlb)) as u64,
            walks_per_ns: machine.system.frequency_mhz.value / 1000.0 / walk(machine).0.max(1.0),
            is_fractured: machine.guest.as_ref().is_some_and(|guest| guest.fracturing == Switch::On),
        }
    }
}
