//! Takes the prices of items, with their bands, from a machine file, and the few other numbers that a replay needs of
//! it.

use crate::bill::{Estimate, Prices};
use tlbkit_machine::{Machine, Quantity, Switch, TlbArray};

impl Prices {
    /// The prices on `machine`, in cycles of its clock. Where its file warns of itself (`caution`), each price may be
    /// half or twice what its band says.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let cycles = &machine.cycles;
        let flush = of(&cycles.cr3_flush);
        let keep = cycles.cr3_keep.as_ref().map_or(flush, of);
        let page = of(&cycles.invlpg);
        let user_page = cycles.invpcid_address.as_ref().map_or(page, of);
        let everything = of(cycles.invpcid_all.as_ref().unwrap_or(&cycles.cr4_pge_toggle));
        let (near, far) = walk(machine);
        // The program may never use the page again, or must walk far for its entry.
        let walk = Estimate { low: 0.0, value: near / 2.0, high: far };
        let (deliver, interrupt) = (of(&cycles.ipi_deliver_same_socket), of(&cycles.interrupt_entry_exit));
        let prices = [keep, flush, page, user_page, everything, of(&cycles.ipi_send), deliver, interrupt, walk];
        let doubt = if machine.caution.is_some() { 2.0 } else { 1.0 };
        Self(prices.map(|price| Estimate { low: price.low / doubt, high: price.high * doubt, ..price }))
    }
}

/// A price with the band that the file gives. If it gives none, the band is half to twice the value, as for every
/// number that is taken from another machine.
fn of(quantity: &Quantity) -> Estimate {
    let value = quantity.value;
    let [low, high] = quantity.band.unwrap_or([value / 2.0, value * 2.0]);
    Estimate { low, value, high }
}

/// Cycles of a page walk whose tables are in the nearest cache, and of one whose last entry is far away.
fn walk(machine: &Machine) -> (f64, f64) {
    let walk = &machine.walk;
    let nested =
        machine.guest.as_ref().map_or(0.0, |guest| guest.references_per_reference.value * guest.reference_cycles.value);
    let near = walk.start_cycles.value + walk.leaf_hot_cycles.value + nested;
    let far = walk.start_cycles.value + walk.leaf_cold_cycles.value + walk.upper_hot_cycles.value + 2.0 * nested;
    (near.min(far), near.max(far))
}

/// How much a machine's TLB holds, and how fast it fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// How many entries the TLB of a CPU has.
    pub(crate) entries: u64,
    /// How many page walks a program can do in a nanosecond if it does nothing else.
    pub(crate) walks_per_ns: f64,
    /// Whether one INVLPG empties the whole TLB, as in a guest whose host maps it with small pages.
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
