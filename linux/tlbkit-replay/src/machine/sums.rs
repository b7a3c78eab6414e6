//! The counts of several runs whose policies differ only in their ceilings. What all runs have in common is counted
//! once, and what only some of them have is counted apart.

use crate::bill::{CostItem, CostPart, Counts};
use crate::op::Caller;
use crate::tally::{Bounds, Tally};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use tlbkit_trace::{FlushReason, FlushSize};

/// To which runs a count belongs. Runs are in the order of their ceilings, the lowest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Runs {
    All,
    /// The runs before this one, whose ceilings are below what is flushed.
    Before(usize),
    /// This run and the ones behind it.
    From(usize),
    One(usize),
}

/// Counts that only some runs have.
#[derive(Default)]
struct Apart {
    flushes: BTreeMap<(u8, FlushSize), u64>,
    needed_low: u64,
    entries_lost: Bounds,
    charges: FxHashMap<(Option<Caller>, CostPart, CostItem), u64>,
}

/// All counts of one replay.
pub(super) struct Sums {
    pub(super) all: Tally,
    /// For each run: the counts of all runs before it, of all from it on, and its own. Empty if there is only one run.
    before: Vec<Apart>,
    from: Vec<Apart>,
    own: Vec<Apart>,
}

impl Sums {
    pub(super) fn new(runs: usize) -> Self {
        let apart = || (0..if runs > 1 { runs } else { 0 }).map(|_| Apart::default()).collect();
        Self { all: Tally::default(), before: apart(), from: apart(), own: apart() }
    }

    /// Where the counts of `runs` are kept apart. None if they are those of all runs.
    fn apart(&mut self, runs: Runs) -> Option<&mut Apart> {
        match runs {
            Runs::All | Runs::From(0) => None,
            Runs::Before(run) => self.before.get_mut(run),
            Runs::From(run) => self.from.get_mut(run),
            Runs::One(run) => self.own.get_mut(run),
        }
    }

    pub(super) fn flush(&mut self, runs: Runs, reason: FlushReason, size: FlushSize) {
        match self.apart(runs) {
            None => self.all.flush(reason, size),
            Some(apart) => *apart.flushes.entry((reason as u8, size)).or_default() += 1,
        }
    }

    /// An interrupt was needed, because its target certainly held what was revoked, in the runs from `first` on.
    pub(super) fn needed(&mut self, first: usize) {
        self.all.needed_interrupts.high += 1;
        match self.apart(Runs::From(first)) {
            None => self.all.needed_interrupts.low += u64::from(first == 0),
            Some(apart) => apart.needed_low += 1,
        }
    }

    pub(super) fn lost(&mut self, run: usize, lost: Bounds) {
        let sum = match self.apart(Runs::One(run)) {
            None => &mut self.all.entries_lost,
            Some(apart) => &mut apart.entries_lost,
        };
        sum.low += lost.low;
        sum.high += lost.high;
    }

    pub(super) fn charge(&mut self, runs: Runs, who: Option<Caller>, part: CostPart, item: CostItem, count: u64) {
        match self.apart(runs) {
            None => self.all.charge(who, |bill| bill.charge(part, item, count)),
            Some(apart) => *apart.charges.entry((who, part, item)).or_default() += count,
        }
    }

    pub(super) fn charge_all(&mut self, who: Option<Caller>, part: CostPart, counts: &Counts) {
        self.all.charge(who, |bill| bill.charge_all(part, counts));
    }

    /// All counts of one run.
    pub(super) fn of(&self, run: usize) -> Tally {
        let mut tally = self.all.clone();
        let behind = self.before.iter().skip(run + 1);
        for apart in behind.chain(self.from.iter().take(run + 1)).chain(self.own.get(run)) {
            apart.flushes.iter().for_each(|(key, count)| *tally.flushes.entry(*key).or_default() += count);
            tally.needed_interrupts.low += apart.needed_low;
            tally.entries_lost.low += apart.entries_lost.low;
            tally.entries_lost.high += apart.entries_lost.high;
            for (&(who, part, item), &count) in &apart.charges {
                tally.charge(who, |bill| bill.charge(part, item, count));
            }
        }
        tally
    }
}
