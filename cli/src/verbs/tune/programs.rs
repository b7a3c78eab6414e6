//! Settings by which the programs that pay most for giving memory back would keep it, each program by itself.

use std::collections::{BTreeMap, BTreeSet};

use tlbkit::Policy;
use tlbkit_host::Allocator;
use tlbkit_replay::{Bill, Caller, CostItem, Party, Spared, Tally};
use tlbkit_trace::Name;

use super::allocator::{Certainty, Keeping, keeping, of_programs};
use super::knob::{ALLOCATOR, FLUSHES, Knob, Setting, Sparing};
use crate::lab::trace::Trace;

/// Programs that are told to keep memory, one at a time.
const PROGRAMS: usize = 5;

/// Said where nobody knows which allocator calls: then no setting of one is printed.
const UNKNOWN: &str = "Which allocator calls is not known: its program is not on this machine, or has none of glibc's, \
    jemalloc, tcmalloc, mimalloc and Go's. Tell it to keep memory, if it can be told.";

/// The programs that pay most for giving memory back, each as if it kept it.
pub(super) fn knobs(trace: &Trace, recorded_by: Policy, recorder: &Tally) -> Vec<Knob> {
    let mut callers: BTreeMap<Name, (BTreeSet<Caller>, Bill)> = BTreeMap::new();
    for (who, caller) in &recorder.by_caller {
        if who.party == Party::Asked && who.pattern.is_some_and(|pattern| pattern.cause.may_be_an_allocators()) {
            let (all, bill) = callers.entry(who.comm).or_default();
            all.insert(*who);
            *bill += &caller.bill;
        }
    }
    // Each page that was given back may have been faulted in again.
    let cost = |bill: &Bill| {
        let faults = trace.prices.of(CostItem::Fault).times(bill.count(CostItem::GiveBack) as f64);
        bill.total(&trace.prices).value + faults.value
    };
    let mut most: Vec<_> = callers.into_iter().map(|(comm, (who, bill))| (comm, who, cost(&bill))).collect();
    most.sort_by(|a, b| b.2.total_cmp(&a.2));
    let knobs = |(comm, who, _)| keep_memory(trace, recorded_by, comm, &who);
    most.into_iter().take(PROGRAMS).flat_map(knobs).collect()
}

/// What lets a program keep its memory: a setting for each allocator that is there and makes such calls.
fn keep_memory(trace: &Trace, policy: Policy, comm: Name, callers: &BTreeSet<Caller>) -> Vec<Knob> {
    let allocators = of_programs(comm, &trace.recording.deduced, trace.recording.names());
    let comm = trace.recording.names().text(comm);
    if allocators.is_empty() {
        let setting = Setting::new(ALLOCATOR, &format!("{comm} keeps memory"), &[], FLUSHES).with_remark(UNKNOWN);
        let sparing = Sparing { surely: BTreeSet::new(), perhaps: callers.clone(), what: Spared::Calls };
        return vec![Knob { setting, policy, sparing: Some(sparing) }];
    }
    let knob = |allocator: &Allocator| {
        let keeping = keeping(allocator);
        let of = |certainty| {
            let is_so = |who: &&Caller| who.pattern.is_some_and(|pattern| keeping.ends(pattern.cause) == certainty);
            callers.iter().filter(is_so).copied().collect::<BTreeSet<Caller>>()
        };
        let (surely, perhaps, what) = (of(Certainty::Yes), of(Certainty::Perhaps), keeping.ends);
        let change = keeping.change();
        let Keeping { allocator, variable, value, remark, .. } = keeping;
        let command = format!("{variable}={value}   # {allocator}");
        let setting = Setting::new(ALLOCATOR, &format!("{comm} keeps memory, {allocator}"), &[command], FLUSHES);
        let setting = setting.with_remark(remark).tried_as(change);
        let has_any = !surely.is_empty() || !perhaps.is_empty();
        has_any.then_some(Knob { setting, policy, sparing: Some(Sparing { surely, perhaps, what }) })
    };
    allocators.iter().filter_map(knob).collect()
}
