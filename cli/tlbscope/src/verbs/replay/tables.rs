//! The answer as text: health and agreement first, then the policies side by side.

use tlbkit_output::table::grid;
use tlbkit_replay::Estimate;

use super::quantity::{PolicyTally, Quantity, callers, rows};
use crate::estimate::range;
use crate::trace::Trace;

/// The rows under their heading.
pub(super) type Cells = (Vec<String>, Vec<Vec<String>>);

pub(super) fn text(trace: &Trace, answers: &[PolicyTally]) -> String {
    let (head, rows) = policies(trace, answers);
    let (callers_head, callers) = most(trace, answers);
    let recorder = &answers[0].name;
    format!(
        "{}\n\nreplayed as {recorder}, which recorded it, on {}:\n{}\n{}\n{}\n{REMARK}",
        trace.health(),
        trace.machine.name,
        trace.agreement_table(&answers[0].tally),
        grid(&head, &rows),
        grid(&callers_head, &callers),
    )
}

/// What the ranges mean, and a row whose name says something else than it counts.
pub(super) const REMARK: &str = "A range: from programs that never come back to what was flushed, at the machine's \
lowest prices, to\nprograms that want all of it again as fast as they can walk, at its highest.
\"remote IPI send\" is Linux's name for a flush that has others to ask, each counted once, whether or not one of them is
interrupted: lazy CPUs may not be. \"interrupts sent\" counts CPUs that were.";

/// A column a policy.
pub(super) fn policies(trace: &Trace, answers: &[PolicyTally]) -> Cells {
    let all: Vec<Vec<Quantity>> = answers.iter().map(|answer| rows(trace, &answer.tally)).collect();
    let cell = |policy: &[Quantity], quantity: &str| {
        policy.iter().find(|row| row.quantity == quantity).map_or_else(|| "-".to_owned(), |row| range(row.range))
    };
    let line = |row: &Quantity| {
        let recorded = row.recorded.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let cells = all.iter().map(|policy| cell(policy, &row.quantity));
        [row.quantity.clone(), recorded].into_iter().chain(cells).collect()
    };
    // What no policy does is not worth a line.
    let is_there = |row: &&Quantity| {
        let any = |policy: &Vec<Quantity>| {
            policy.iter().any(|other| other.quantity == row.quantity && other.range.high > 0.0)
        };
        row.recorded > Some(0) || all.iter().any(any)
    };
    (head(&["quantity", "recorded"], answers), longest(&all).iter().filter(is_there).map(line).collect())
}

/// A policy that sends no interrupt has no share of them.
fn longest(all: &[Vec<Quantity>]) -> &[Quantity] {
    all.iter().max_by_key(|rows| rows.len()).map_or(&[], Vec::as_slice)
}

pub(super) fn most(trace: &Trace, answers: &[PolicyTally]) -> Cells {
    let line = |(key, costs): (String, Vec<Estimate>)| [key].into_iter().chain(costs.into_iter().map(range)).collect();
    (head(&["cycles of"], answers), callers(trace, answers).into_iter().map(line).collect())
}

fn head(first: &[&str], answers: &[PolicyTally]) -> Vec<String> {
    first.iter().map(ToString::to_string).chain(answers.iter().map(|answer| answer.name.clone())).collect()
}
