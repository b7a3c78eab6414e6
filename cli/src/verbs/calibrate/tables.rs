//! A survey as tables for a person; the flat rows of [`super::figures`] are for programs.

use tlbkit_host::{Sample, Survey};

use super::figures::{self, Figure};
use crate::output::table::grid;

/// All of them.
pub(super) fn text(survey: &Survey) -> String {
    let mut text = costs(&figures::single(survey));
    text += "\nNanoseconds, with the spread from the 10th to the 90th percentile:\n\n";
    [loads(survey), revocation(survey), rings(survey)].iter().for_each(|table| text += &format!("{table}\n"));
    text
}

/// A row for each.
pub(super) fn costs(figures: &[Figure]) -> String {
    let rows: Vec<_> = figures.iter().map(Figure::text_row).collect();
    grid(&["cost", "ns", "spread", "cycles", "remark"], &rows)
}

fn cell(sample: &Sample) -> String {
    let decimals = usize::from(sample.median < 100.0);
    format!("{:.decimals$} ({})", sample.median, figures::spread(sample))
}

fn optional(sample: &Option<Sample>) -> String {
    sample.as_ref().map_or("-".to_owned(), cell)
}

fn loads(survey: &Survey) -> String {
    let row = |point: &tlbkit_host::translation::CurvePoint| {
        vec![point.pages.to_string(), cell(&point.small), optional(&point.large), cell(&point.dense)]
    };
    let rows: Vec<_> = survey.translation.curve.iter().map(row).collect();
    grid(&["a load, by pages", "4K", "same, on 2M", "same, side by side"], &rows)
}

fn revocation(survey: &Survey) -> String {
    let row = |row: &tlbkit_host::revocation::RevocationCost| {
        let name = format!("{}, {}", figures::call_word(row.call), row.pages);
        vec![name, cell(&row.alone), optional(&row.asleep), optional(&row.spinning)]
    };
    let rows: Vec<_> = survey.revocation.rows.iter().map(row).collect();
    grid(&["call, pages", "alone", "thread asleep", "thread running"], &rows)
}

fn rings(survey: &Survey) -> String {
    let row = |row: &tlbkit_host::ring::RingCost| {
        vec![row.processes.to_string(), cell(&row.idle), cell(&row.few_pages), cell(&row.many_pages)]
    };
    let rows: Vec<_> = survey.rings.rows.iter().map(row).collect();
    grid(&["a hop, by processes", "0 pages", "256 pages", "512 pages"], &rows)
}
