//! The answer as a page: flushes over time, their sizes and times, the policies side by side, who flushes.

use std::path::Path;

use anyhow::Result;
use tlbkit_output::svg::{Axis, Plot, Scale, Stacked, StackedRow};
use tlbkit_replay::CostPart;

use super::quantity::PolicyTally;
use super::tables::{REMARK, most, policies};
use crate::sheet::{self, Sheet, SheetPart};
use crate::summary::{plots, programs};
use crate::trace::Trace;

/// What a person tells apart in a bar.
const PARTS: [(&str, &[CostPart]); 4] = [
    ("switches, crossings", &[CostPart::Switching, CostPart::Crossing]),
    ("own flushes", &[CostPart::Flushing]),
    ("interrupts", &[CostPart::Asking, CostPart::Waiting, CostPart::Answering]),
    ("refilling", &[CostPart::Refilling]),
];

/// Writes the page.
pub(super) fn write(trace: &Trace, answers: &[PolicyTally], path: &Path) -> Result<()> {
    let summary = &trace.recording.summary;
    let agreement = trace.agreement_parts(&answers[0].tally);
    let (side_by_side, callers) = (policies(trace, answers), most(trace, answers));
    let mut parts = vec![
        SheetPart::Heading("How far to trust it".into()),
        SheetPart::Words(format!(
            "Replayed as {}, which recorded it, against what that kernel counted.",
            answers[0].name
        )),
    ];
    parts.extend(agreement);
    parts.extend([
        SheetPart::Heading("What was recorded".into()),
        SheetPart::Plots(plots(summary)),
        SheetPart::Heading("Policies side by side".into()),
        SheetPart::Plots(vec![cost_plot(trace, answers)]),
        SheetPart::Table(side_by_side.0, side_by_side.1),
        SheetPart::Words(REMARK.replace('\n', " ")),
        SheetPart::Heading("What costs most".into()),
        SheetPart::Table(callers.0, callers.1),
        SheetPart::Heading("Who flushes".into()),
        programs(summary),
    ]);
    sheet::write(
        &Sheet { title: format!("{}, replayed", trace.name), verdict: None, about: trace.about(), parts },
        path,
    )
}

fn cost_plot(trace: &Trace, answers: &[PolicyTally]) -> Plot {
    let row = |answer: &PolicyTally| {
        let bill = trace.bill(&answer.tally);
        let cost =
            |parts: &[CostPart]| -> f64 { parts.iter().map(|&part| bill.cost(part, &trace.prices).value / 1e6).sum() };
        StackedRow {
            group: answer.name.clone(),
            label: String::new(),
            values: PARTS.iter().map(|(_, parts)| cost(parts)).collect(),
            below: None,
        }
    };
    Plot::Stacked(Stacked {
        title: "Cycles by policy, in millions; of refilling the likely part".into(),
        about: "For each policy, millions of cycles by what they went into".into(),
        x: Axis::new("cycles", "millions", Scale::FromZero),
        parts: PARTS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        rows: answers.iter().map(row).collect(),
    })
}
