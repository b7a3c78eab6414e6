//! Cycles by cause, with a range where a trace does not tell.

use std::ops::AddAssign;
use tlbkit_sim::machine::{Machine, Quantity};

/// A figure that lies somewhere between two.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Range {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl Range {
    /// Exactly.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self { low: value, high: value }
    }

    /// Halfway.
    #[must_use]
    pub const fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

impl AddAssign for Range {
    fn add_assign(&mut self, other: Self) {
        self.low += other.low;
        self.high += other.high;
    }
}

/// Cycles of the machine's clock, by cause.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cycles {
    /// CR3 written in a switch.
    pub switching: f64,
    /// The initiator's own half of flushes.
    pub flushing: f64,
    /// Sending interrupts, and waiting for the answers.
    pub asking: f64,
    /// Taking interrupts and flushing for others.
    pub answering: f64,
    /// Walks to find again what was flushed.
    pub refilling: Range,
}

impl Cycles {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Range {
        let sure = self.switching + self.flushing + self.asking + self.answering;
        Range { low: sure + self.refilling.low, high: sure + self.refilling.high }
    }
}

impl AddAssign for Cycles {
    fn add_assign(&mut self, other: Self) {
        self.switching += other.switching;
        self.flushing += other.flushing;
        self.asking += other.asking;
        self.answering += other.answering;
        self.refilling += other.refilling;
    }
}

/// What a replay takes from a machine file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prices {
    pub(crate) cycles_per_ns: f64,
    pub(crate) invlpg: f64,
    pub(crate) cr3_flush: f64,
    pub(crate) cr3_keep: f64,
    pub(crate) everything: f64,
    pub(crate) ipi_send: f64,
    pub(crate) ipi_deliver: f64,
    pub(crate) interrupt: f64,
    /// One walk: everything near, or the leaf entry far.
    pub(crate) walk: Range,
    /// Entries that a CPU's TLB holds.
    pub(crate) entries: u64,
    /// One INVLPG empties the whole TLB (a guest whose host has small pages).
    pub(crate) is_fractured: bool,
}

impl Prices {
    pub(crate) fn new(machine: &Machine) -> Self {
        let (cycles, walk) = (&machine.cycles, &machine.walk);
        let optional = |quantity: &Option<Quantity>, or: &Quantity| quantity.as_ref().unwrap_or(or).value;
        let nested = machine
            .guest
            .as_ref()
            .map_or(0.0, |guest| guest.references_per_reference.value * guest.reference_cycles.value);
        let near = walk.start_cycles.value + walk.leaf_hot_cycles.value + nested;
        let far = walk.start_cycles.value + walk.leaf_cold_cycles.value + walk.upper_hot_cycles.value + 2.0 * nested;
        let entries = |arrays: &[tlbkit_sim::machine::TlbArray]| -> f64 {
            arrays.iter().map(|array| array.sets.value * array.ways.value).sum()
        };
        Self {
            cycles_per_ns: machine.system.frequency_mhz.value / 1000.0,
            invlpg: cycles.invlpg.value,
            cr3_flush: cycles.cr3_flush.value,
            cr3_keep: optional(&cycles.cr3_keep, &cycles.cr3_flush),
            everything: optional(&cycles.invpcid_all, &cycles.cr4_pge_toggle),
            ipi_send: cycles.ipi_send.value,
            ipi_deliver: cycles.ipi_deliver_same_socket.value,
            interrupt: cycles.interrupt_entry_exit.value,
            walk: Range { low: near.min(far), high: near.max(far) },
            entries: (entries(&machine.tlb.l1) + entries(&machine.tlb.stlb)) as u64,
            is_fractured: machine
                .guest
                .as_ref()
                .is_some_and(|guest| guest.fracturing == tlbkit_sim::machine::Switch::On),
        }
    }
}
