//! Takes the prices of items, with their bands, from a machine file, and the few other numbers that a replay needs of
//! it.

use crate::bill::{Estimate, Prices};
use tlbkit_machine::{Cycles, Machine, Quantity, Switch, TlbArray};

impl Prices {
    /// The prices on `machine`, in cycles of its clock.
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

    /// Which prices of faults and system calls the file of `machine` lacks, in words for the user. [`Prices::new`] puts
    /// such prices together from other numbers of the file.
    #[must_use]
    pub fn lacking(machine: &Machine) -> Vec<&'static str> {
        let Cycles { anonymous_fault, give_back_call, give_back_page, .. } = &machine.cycles;
        let all =
            [("a fault", anonymous_fault), ("a call", give_back_call), ("a page that is given back", give_back_page)];
        all.into_iter().filter_map(|(what, price)| price.is_none().then_some(what)).collect()
    }
}

/// A price with the band that the file gives. If it gives none, the band is half to twice the value, as for every
/// number that is taken from another machine.
fn of(quantity: &Quantity) -> Estimate {
    let value = quantity.value;
    let [low, high] = quantity.band.unwrap_or([value / 2.0, value * 2.0]);
    Estimate { low, value, high }
}

/// The prices of a fault that brings a new page, of one that brings a huge page, of another fault, of a call, and of a
/// page that a call gives back.
///
/// If the file has no price for one of these, it is the sum of its parts that the file has. The band reaches from the
/// cheapest parts to twice the dearest ones, since the kernel's own work between the parts is not among them.
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
    // The entry is read and written, and the kernel's record of the page is changed.
    let give_back = whole(&cycles.give_back_page, of(&machine.software.pte_access_cycles).times(3.0));
    [fault, huge_fault, other_fault, call, give_back]
}

/// The prices of marking a page instead of freeing it, and of the next write to such a page.
///
/// To mark a page is to change its entry, which takes less than to free it. The write walks for the entry and sets its
/// dirty bit. It takes at least a walk through near tables, and at most twice a walk through far ones.
fn lazily(machine: &Machine, give_back: Estimate) -> [Estimate; 2] {
    let cycles = &machine.cycles;
    let entry = of(&machine.software.pte_access_cycles);
    let marked = Estimate { low: entry.low, value: f64::midpoint(entry.low, give_back.high), high: give_back.high };
    let (near, far) = walk(machine);
    let stored = Estimate { low: near, value: f64::midpoint(near, far), high: 2.0 * far };
    [(&cycles.lazy_free_page, marked), (&cycles.lazy_free_store, stored)]
        .map(|(price, parts)| price.as_ref().map_or(parts, of))
}

/// How many base pages of 4 KiB a huge page of 2 MiB has.
const BASE_PAGES_OF_HUGE: f64 = 512.0;

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
