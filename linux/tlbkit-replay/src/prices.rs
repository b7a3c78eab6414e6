//! Prices from a machine file, with the bands that it gives them, and the little else that a replay asks of it.

use crate::bill::{Estimate, Prices};
use tlbkit_sim::machine::{Cycles, Machine, Quantity, Switch, TlbArray};

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
        let [fault, huge_fault, other_fault, call, give_back] = memory(machine);
        let [lazy_free, lazy_store] = lazily(machine, give_back);
        Self([
            keep,
            flush,
            page,
            user_page,
            everything,
            of(&cycles.ipi_send),
            deliver,
            interrupt,
            walk,
            fault,
            huge_fault,
            other_fault,
            call,
            give_back,
            lazy_free,
            lazy_store,
        ])
    }

    /// What a machine file lacks of the prices of faults and calls: they are then put together from its other numbers.
    #[must_use]
    pub fn lacking(machine: &Machine) -> Vec<&'static str> {
        let Cycles { anonymous_fault, give_back_call, give_back_page, .. } = &machine.cycles;
        let all =
            [("a fault", anonymous_fault), ("a call", give_back_call), ("a page that is given back", give_back_page)];
        all.into_iter().filter_map(|(what, price)| price.is_none().then_some(what)).collect()
    }
}

/// A price with the band that the file gives it. Where it gives none, nobody has said how far machines of its kind
/// differ: half to twice, as for every number that is taken from another machine.
fn of(quantity: &Quantity) -> Estimate {
    let value = quantity.value;
    let [low, high] = quantity.band.unwrap_or([value / 2.0, value * 2.0]);
    Estimate { low, value, high }
}

/// New page, new huge page, page that was there, call, and page given back.
///
/// Where the file has no price of the whole, it is the sum of the parts that it has: at least as much as the cheapest
/// parts, and at most twice the dearest, since the kernel's own work between them is no part.
fn memory(machine: &Machine) -> [Estimate; 5] {
    let cycles = &machine.cycles;
    let entry = of(&cycles.page_fault_entry_exit);
    let zero = of(&cycles.zero_page);
    let put_together = |parts: Estimate| Estimate { high: 2.0 * parts.high, ..parts };
    let whole = |price: &Option<Quantity>, parts: Estimate| price.as_ref().map_or(put_together(parts), of);
    let fault = whole(&cycles.anonymous_fault, entry + zero);
    let huge_fault = cycles.anonymous_huge_fault.as_ref().map_or(fault + zero.times(BASE_PAGES_OF_HUGE - 1.0), of);
    let other_fault = Estimate { high: entry.high.max(fault.high), ..entry };
    let call = whole(&cycles.give_back_call, of(&cycles.syscall));
    // Its entry is read, written, and the page's own record too.
    let give_back = whole(&cycles.give_back_page, of(&machine.software.pte_access_cycles).times(3.0));
    [fault, huge_fault, other_fault, call, give_back]
}

/// A page that is marked instead of freed, and the next store to it.
///
/// To mark it is to change its entry, and less than to free it. The store walks for the entry and writes to it: at
/// least a walk that is near, at most twice one that is far.
fn lazily(machine: &Machine, give_back: Estimate) -> [Estimate; 2] {
    let cycles = &machine.cycles;
    let entry = of(&machine.software.pte_access_cycles);
    let marked = Estimate { low: entry.low, value: f64::midpoint(entry.low, give_back.high), high: give_back.high };
    let (near, far) = walk(machine);
    let stored = Estimate { low: near, value: f64::midpoint(near, far), high: 2.0 * far };
    [(&cycles.lazy_free_page, marked), (&cycles.lazy_free_store, stored)]
        .map(|(price, parts)| price.as_ref().map_or(parts, of))
}

/// 2 MiB by 4 KiB.
const BASE_PAGES_OF_HUGE: f64 = 512.0;

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
