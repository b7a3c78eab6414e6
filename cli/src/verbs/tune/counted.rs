//! What a setting saves, by number: faults, flushes and calls apart.

use tlbkit_replay::{CostItem, Party, Tally};

use crate::lab::trace::Billing;

/// Numbers of those whom the answer is about; below zero if a setting adds some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    pub(super) faults: i64,
    /// By those who revoke: what other CPUs flush for them is not counted again.
    pub(super) flushes: i64,
    /// Calls that give memory back.
    pub(super) calls: i64,
}

impl Counted {
    pub(super) fn of(tally: &Tally, billing: Billing) -> Self {
        let bill = billing.of(tally);
        let sum = |items: &[CostItem]| items.iter().map(|&item| bill.count(item)).sum::<u64>().cast_signed();
        let is_meant = |party| matches!(billing, Billing::Everybody) || party == Party::Asked;
        let callers = tally.by_caller.iter().filter(|(who, _)| is_meant(who.party));
        Self {
            faults: sum(&[CostItem::Fault, CostItem::HugeFault, CostItem::OtherFault]),
            flushes: callers.map(|(_, caller)| caller.flushes).sum::<u64>().cast_signed(),
            calls: sum(&[CostItem::Call]),
        }
    }

    pub(super) const fn less(self, after: Self) -> Self {
        Self {
            faults: self.faults - after.faults,
            flushes: self.flushes - after.flushes,
            calls: self.calls - after.calls,
        }
    }
}
