//! What is told of each policy: one quantity a row, with its range, what the trace has of it, and how far to trust it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tlbkit_replay::{Bill, Bounds, Caller, ComparedCount, CostItem, CostPart, Estimate, Party, Tally, agreement};

use super::subject::Trace;

/// Processes and call patterns that are shown.
const MOST: usize = 5;

/// One policy's answer.
pub(super) struct PolicyTally {
    pub(super) name: String,
    pub(super) tally: Tally,
}

/// One quantity of one policy.
pub(super) struct Quantity {
    pub(super) quantity: String,
    pub(super) range: Estimate,
    /// What the recording kernel counted.
    pub(super) recorded: Option<u64>,
}

const ITEMS: [(&str, CostItem); 5] = [
    ("INVLPG", CostItem::Page),
    ("INVPCID of a page", CostItem::UserPage),
    ("CR3 loads that kept", CostItem::Keep),
    ("CR3 loads that flushed", CostItem::Flush),
    ("flushes of every tag", CostItem::Everything),
];

fn exactly(count: f64) -> Estimate {
    Estimate { low: count, value: count, high: count }
}

fn between(bounds: Bounds, per: f64) -> Estimate {
    let (low, high) = (bounds.low as f64 / per, bounds.high as f64 / per);
    Estimate { low, value: f64::midpoint(low, high), high }
}

/// Everything but callers.
pub(super) fn rows(trace: &Trace, tally: &Tally) -> Vec<Quantity> {
    let plain = |quantity: &str, range| Quantity { quantity: quantity.to_owned(), range, recorded: None };
    let agreed = agreement(&trace.recording.summary, tally, &trace.recording.deduced).into_iter().map(|row| Quantity {
        quantity: row.quantity.label(),
        range: exactly(row.replayed as f64),
        recorded: Some(row.recorded),
    });
    let mut rows: Vec<Quantity> = agreed.collect();
    let (sent, label) = (tally.interrupts as f64, ComparedCount::Interrupts.label());
    // Compared with the trace, if it has the calls across CPUs.
    if rows.iter().all(|row| row.quantity != label) {
        rows.push(plain(&label, exactly(sent)));
    }
    rows.push(plain("interrupts needed", between(tally.needed_interrupts, 1.0)));
    if tally.interrupts > 0 {
        rows.push(plain("needed / sent", between(tally.needed_interrupts, sent)));
    }
    rows.push(plain("entries lost", between(tally.entries_lost, 1.0)));
    let bill = trace.bill(tally);
    rows.extend(ITEMS.map(|(name, item)| plain(name, exactly(bill.count(item) as f64))));
    rows.extend(CostPart::ALL.map(|part| plain(&cycles(part.label()), bill.cost(part, &trace.prices))));
    rows.push(plain(&cycles("all"), bill.total(&trace.prices)));
    rows
}

fn cycles(what: &str) -> String {
    format!("cycles: {what}")
}

/// Bills by what `key` makes of a caller.
fn bills(tally: &Tally, key: &dyn Fn(&Caller) -> Option<String>) -> BTreeMap<String, Bill> {
    let mut bills: BTreeMap<String, Bill> = BTreeMap::new();
    for (who, caller) in tally.by_caller.iter().filter(|(who, _)| who.party == Party::Asked) {
        if let Some(key) = key(who) {
            *bills.entry(key).or_default() += &caller.bill;
        }
    }
    bills
}

/// The items that cost most under the first policy, with their costs under each policy.
pub(super) fn callers(trace: &Trace, answers: &[PolicyTally]) -> Vec<(String, Vec<Estimate>)> {
    let names = trace.recording.names();
    let process = |who: &Caller| Some(format!("process {}", names.text(who.comm)));
    let pattern = |who: &Caller| {
        let pattern = who.pattern?;
        Some(format!("{}, {}", pattern.cause.label(), pattern.extent.label()))
    };
    let mut rows = most(trace, answers, &process);
    rows.extend(most(trace, answers, &pattern));
    rows
}

fn most(
    trace: &Trace,
    answers: &[PolicyTally],
    key: &dyn Fn(&Caller) -> Option<String>,
) -> Vec<(String, Vec<Estimate>)> {
    let all: Vec<_> = answers.iter().map(|answer| bills(&answer.tally, key)).collect();
    let cost = |bill: &Bill| bill.total(&trace.prices);
    let mut keys: Vec<_> = all[0].iter().map(|(key, bill)| (key, cost(bill).value)).collect();
    keys.sort_by(|a, b| b.1.total_cmp(&a.1));
    let row = |(key, _): (&String, f64)| {
        (key.clone(), all.iter().map(|bills| bills.get(key).map_or_else(Estimate::default, cost)).collect())
    };
    keys.into_iter().take(MOST).map(row).collect()
}

/// One object a row. `agreement_pct` is that of the quantity under the recording kernel's policy: how far to trust it
/// under the others. Rows without a policy are about the trace.
pub(super) fn json(trace: &Trace, answers: &[PolicyTally]) -> Vec<Value> {
    let about = trace.health_counts().into_iter();
    let mut out: Vec<Value> =
        about.map(|(quantity, count)| object(None, quantity, exactly(count as f64), None, None)).collect();
    let agreement = agreement(&trace.recording.summary, &answers[0].tally, &trace.recording.deduced);
    let trust: BTreeMap<_, _> = agreement.into_iter().map(|row| (row.quantity.label(), row.percent())).collect();
    for answer in answers {
        out.extend(rows(trace, &answer.tally).iter().map(|row| {
            let percent = trust.get(&row.quantity).copied().flatten();
            object(Some(&answer.name), &row.quantity, row.range, row.recorded, percent)
        }));
    }
    for (key, costs) in callers(trace, answers) {
        let quantity = cycles(&key);
        let row = |(answer, &cost): (&PolicyTally, &Estimate)| object(Some(&answer.name), &quantity, cost, None, None);
        out.extend(answers.iter().zip(&costs).map(row));
    }
    out
}

fn object(policy: Option<&str>, quantity: &str, range: Estimate, recorded: Option<u64>, percent: Option<f64>) -> Value {
    json!({
        "policy": policy, "quantity": quantity, "value": range.value, "low": range.low, "high": range.high,
        "recorded": recorded, "agreement_pct": percent,
    })
}
