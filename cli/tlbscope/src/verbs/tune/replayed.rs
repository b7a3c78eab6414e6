//! What each knob makes of a trace: all replays of it, side by side.

use std::collections::BTreeSet;
use std::io;

use rayon::prelude::*;
use tlbkit::Policy;
use tlbkit_machine::Machine;
use tlbkit_replay::{Bill, Caller, CostItem, Deduced, Party, Run, Spared, Tally, alike, replay_each};

use super::knob::{Knob, Sparing};
use crate::trace::Billing;

/// What one replay says of those whom the answer is about.
pub(super) struct Outcome {
    pub(super) bill: Bill,
    pub(super) counted: Counted,
}

impl Outcome {
    pub(super) fn of(tally: &Tally, billing: Billing) -> Self {
        Self { bill: billing.of(tally), counted: Counted::of(tally, billing) }
    }
}

/// What a knob makes of a trace.
pub(super) struct Replayed {
    pub(super) likely: Outcome,
    /// Where some of it is in doubt: what remains of it at least. Nothing, if all of it is in doubt.
    pub(super) surely: Surely,
}

/// How much of an outcome is certain.
pub(super) enum Surely {
    All,
    Part(Box<Outcome>),
    Nothing,
}

/// A replay that is to be made.
pub(super) struct Plan<'k> {
    policy: Policy,
    /// Callers that are spared, and what of them.
    spared: Vec<&'k BTreeSet<Caller>>,
    what: Spared,
}

impl<'k> Plan<'k> {
    pub(super) const fn of(policy: Policy) -> Self {
        Self { policy, spared: Vec::new(), what: Spared::Nothing }
    }

    /// Those of a knob that spares some: all of them, and where that tells less, those that it spares for certain.
    fn of_knob(knob: &'k Knob) -> impl Iterator<Item = Self> {
        let plans = knob.sparing.as_ref().map(|Sparing { surely, perhaps, what }| {
            let plan = |spared| Self { policy: knob.policy, spared, what: *what };
            let is_both = !surely.is_empty() && !perhaps.is_empty();
            [Some(plan(vec![surely, perhaps])), is_both.then(|| plan(vec![surely]))]
        });
        plans.into_iter().flatten().flatten()
    }

    fn spares(&self, who: Caller) -> Spared {
        if self.spared.iter().any(|spared| spared.contains(&who)) { self.what } else { Spared::Nothing }
    }
}

/// Makes all of them, and of each what `make` makes of its place and its counts.
pub(super) fn replay_all<T: Send>(
    deduced: &Deduced,
    machine: &Machine,
    plans: &[Plan<'_>],
    make: impl Fn(usize, &Tally) -> T + Sync,
) -> io::Result<Vec<T>> {
    let plain: Vec<Run<'_>> = plans.iter().map(|plan| Run::of(plan.policy)).collect();
    let groups = if plans.iter().all(|plan| plan.spared.is_empty()) {
        alike(machine, &plain)
    } else {
        (0..plans.len()).map(|place| vec![place]).collect()
    };
    // A lane for each processor: what it unpacks, it unpacks once for all of its own.
    let lanes = rayon::current_num_threads().clamp(1, groups.len().max(1));
    let lane = |number: usize| {
        let places: Vec<usize> = groups.iter().skip(number).step_by(lanes).flatten().copied().collect();
        let spares: Vec<_> = places.iter().map(|&place| move |who| plans[place].spares(who)).collect();
        let run = |(&place, spares): (&usize, _)| Run {
            policy: plans[place].policy,
            spared: (!plans[place].spared.is_empty()).then_some(spares),
        };
        let runs: Vec<Run<'_>> =
            places.iter().zip(spares.iter().map(|spares| spares as &dyn Fn(Caller) -> Spared)).map(run).collect();
        let mut made = Vec::new();
        replay_each(deduced, machine, &runs, |run, tally| made.push((places[run], make(places[run], &tally))))?;
        Ok(made)
    };
    let made: io::Result<Vec<_>> = (0..lanes).into_par_iter().map(lane).collect();
    let mut made: Vec<(usize, T)> = made?.into_iter().flatten().collect();
    made.sort_by_key(|(place, _)| *place);
    Ok(made.into_iter().map(|(_, made)| made).collect())
}

/// What knobs that spare some callers make of a trace.
pub(super) fn spare(
    deduced: &Deduced,
    machine: &Machine,
    knobs: &[Knob],
    make: impl Fn(&Tally) -> Outcome + Sync,
) -> io::Result<Vec<Replayed>> {
    let plans: Vec<Plan<'_>> = knobs.iter().flat_map(Plan::of_knob).collect();
    let mut outcomes = replay_all(deduced, machine, &plans, |_, tally| make(tally))?.into_iter();
    let mut next = || outcomes.next().expect("an outcome for each plan");
    let replayed = knobs.iter().filter_map(|knob| knob.sparing.as_ref()).map(|sparing| {
        let likely = next();
        let surely = match (sparing.surely.is_empty(), sparing.perhaps.is_empty()) {
            (_, true) => Surely::All,
            (true, false) => Surely::Nothing,
            (false, false) => Surely::Part(Box::new(next())),
        };
        Replayed { likely, surely }
    });
    Ok(replayed.collect())
}

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
