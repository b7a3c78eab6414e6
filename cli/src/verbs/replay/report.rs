//! The answer as a page: flushes over time, their sizes and times, the policies side by side, who flushes.

use std::path::Path;

use anyhow::Result;
use tlbkit_replay::Part as Cycles;

use super::quantity::Answer;
use super::tables::{REMARK, most, policies};
use crate::lab::summary::{plots, programs};
use crate::lab::trace::{Trace, agreement_cells};
use crate::output::sheet::{self, Part, Sheet};
use crate::output::svg::{Axis, Plot, Scale, Stacked, StackedRow};

/// What a person tells apart in a bar.
const PARTS: [(&str, &[Cycles]); 4] = [
    ("switches, crossings", &[Cycles::Switching, Cycles::Crossing]),
    ("own flushes", &[Cycles::Flushing]),
    ("interrupts", &[Cycles::Asking, Cycles::Waiting, Cycles::Answering]),
    ("refilling", &[Cycles::Refilling]),
];

/// Writes the page.
pub(super) fn write(trace: &Trace, answers: &[Answer], path: &Path) -> Result<()> {
    let summary = &trace.recording.summary;
    let agreement = agreement_cells(&trace.agreement(&answers[0].tally));
    let (side_by_side, callers) = (policies(trace, answers), most(trace, answers));
    let parts = vec![
        Part::Heading("How far to trust it".into()),
        Part::Words(format!("Replayed as {}, which recorded it, against what that kernel counted.", answers[0].name)),
        Part::Table(agreement.0, agreement.1),
        Part::Heading("What was recorded".into()),
        Part::Plots(plots(summary)),
        Part::Heading("Policies side by side".into()),
        Part::Plots(vec![cost_plot(trace, answers)]),
        Part::Table(side_by_side.0, side_by_side.1),
        Part::Words(REMARK.replace('\n', " ")),
        Part::Heading("What costs most".into()),
        Part::Table(callers.0, callers.1),
        Part::Heading("Who flushes".into()),
        programs(summary),
    ];
    sheet::write(&Sheet { title: format!("{}, replayed", trace.name), about: trace.about(), parts }, path)
}

fn cost_plot(trace: &Trace, answers: &[Answer]) -> Plot {
    let row = |answer: &Answer| {
        let cost = |parts: &[Cycles]| -> f64 {
            parts.iter().map(|&part| answer.tally.bill.cost(part, &trace.prices).value / 1e6).sum()
        };
        StackedRow {
            group: answer.name.clone(),
            label: String::new(),
            values: PARTS.iter().map(|(_, parts)| cost(parts)).collect(),
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
