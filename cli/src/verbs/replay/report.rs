//! The answer as a page: flushes over time, their sizes and times, the policies side by side, who flushes.

use std::path::Path;

use anyhow::Result;
use tlbkit_replay::Part as Cycles;
use tlbkit_trace::summary::ProcessRow;
use tlbkit_trace::{FlushReason, FlushSize, Summary};

use super::Answer;
use super::tables::{REMARK, most, policies};
use super::trace::{Trace, agreement_cells};
use crate::output::sheet::{self, Part, Sheet};
use crate::output::svg::{Axis, BarGroup, Bars, Chart, Curve, Draw, Ink, Plot, Point, Scale, Stacked, StackedRow};

/// Points along the axis of time: about as many as a phone can tell apart.
const MOMENTS: usize = 80;
/// Processes that have a row.
const PROCESSES: usize = 30;

/// Classes of sizes, as Linux's ceiling makes them differ.
const CLASSES: [(&str, u64, u64); 5] =
    [("0", 0, 0), ("1", 1, 1), ("2-8", 2, 8), ("9-33", 9, 33), ("34-", 34, u64::MAX)];

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
    let mut parts = vec![
        Part::Heading("How far to trust it".into()),
        Part::Words(format!("Replayed as {}, which recorded it, against what that kernel counted.", answers[0].name)),
        Part::Table(agreement.0, agreement.1),
        Part::Heading("What was recorded".into()),
        Part::Plots(recorded_plots(summary)),
        Part::Heading("Policies side by side".into()),
        Part::Plots(vec![cost_plot(trace, answers)]),
        Part::Table(side_by_side.0, side_by_side.1),
        Part::Words(REMARK.replace('\n', " ")),
        Part::Heading("What costs most".into()),
        Part::Table(callers.0, callers.1),
        Part::Heading("Who flushes".into()),
    ];
    parts.push(processes(&summary.processes()));
    sheet::write(&Sheet { title: format!("{}, replayed", trace.name), about: trace.about(), parts }, path)
}

fn recorded_plots(summary: &Summary) -> Vec<Plot> {
    let mut plots = vec![over_time(summary), sizes_plot(summary)];
    plots.extend(times_plot(summary));
    plots
}

/// A line for each of the reasons that occur, the rarer ones together.
fn over_time(summary: &Summary) -> Plot {
    use FlushReason::{LocalMmShootdown, LocalShootdown, RemoteSendIpi, RemoteShootdown, RemoteWrongCpu, TaskSwitch};
    const LINES: [(&str, &[FlushReason]); 4] = [
        ("task switch", &[TaskSwitch]),
        ("own space", &[LocalMmShootdown, LocalShootdown]),
        ("others asked", &[RemoteSendIpi]),
        ("for others", &[RemoteShootdown, RemoteWrongCpu]),
    ];
    let series = summary.series();
    let each = series.buckets().len().div_ceil(MOMENTS).max(1);
    let seconds = series.width_ns() as f64 * each as f64 / 1e9;
    let line = |(tone, (label, reasons)): (usize, &(&str, &[FlushReason]))| {
        let moments = series.buckets().chunks(each).enumerate();
        let points = moments.map(|(index, buckets)| {
            let count: u64 =
                buckets.iter().flat_map(|bucket| reasons.iter().map(|&reason| bucket[reason as usize])).sum();
            // The last moment may be shorter.
            let share = buckets.len() as f64 / each as f64;
            Point::new(index as f64 * seconds, count as f64 / (seconds * share))
        });
        Curve { label: (*label).to_owned(), ink: Ink::Ours, tone, draw: Draw::Line, points: points.collect() }
    };
    Plot::Chart(Chart {
        title: "Flushes over time".into(),
        about: "Flushes a second by reason, from the begin of the recording to its end".into(),
        x: Axis::new("time", "s", Scale::FromZero),
        y: Axis::new("flushes a second", "", Scale::FromZero),
        curves: LINES.iter().enumerate().map(line).collect(),
    })
}

fn sizes_plot(summary: &Summary) -> Plot {
    let sizes = summary.sizes(FlushReason::LocalMmShootdown);
    let count = |least: u64, most: u64| -> u64 {
        let is_in = |size| matches!(size, FlushSize::Pages(pages) if (least..=most).contains(&pages));
        sizes.rows().iter().filter(|row| is_in(row.size)).map(|row| row.samples).sum()
    };
    let group = |label: &str, count: u64| BarGroup { label: label.to_owned(), values: vec![Some(count as f64)] };
    let mut groups: Vec<_> = CLASSES.iter().map(|&(label, least, most)| group(label, count(least, most))).collect();
    groups.push(group("all", sizes.of(FlushSize::All)));
    Plot::Bars(Bars {
        title: "Flushes of the own space by pages".into(),
        about: "How many flushes named so many pages, or everything".into(),
        x: "pages".into(),
        y: Axis::new("flushes", "", Scale::FromZero),
        series: vec![(Ink::Ours, "recorded".into())],
        groups,
    })
}

/// Times of flushes by their pages, where the trace has any.
fn times_plot(summary: &Summary) -> Option<Plot> {
    let curve = |tone: usize, label: &str, reason: FlushReason| {
        let rows = summary.sizes(reason).rows();
        let point = |row: &tlbkit_trace::summary::SizeRow| match row.size {
            FlushSize::Pages(pages) if pages > 0 => Some(Point::new(pages as f64, row.mean_ns?)),
            _ => None,
        };
        let points: Vec<_> = rows.iter().filter_map(point).collect();
        Curve { label: label.to_owned(), ink: Ink::Ours, tone, draw: Draw::Points, points }
    };
    let curves =
        vec![curve(0, "own half", FlushReason::LocalMmShootdown), curve(1, "for others", FlushReason::RemoteShootdown)];
    let floor = summary.floor_ns().map_or(String::new(), |ns| format!(" The tracepoints alone take {ns} ns."));
    curves.iter().any(|curve| !curve.points.is_empty()).then(|| {
        Plot::Chart(Chart {
            title: format!("Time of a flush by pages.{floor}"),
            about: "Mean time of the flushes that were timed, by the pages that they named".into(),
            x: Axis::new("pages", "", Scale::FromZero),
            y: Axis::new("mean time", "ns", Scale::FromZero),
            curves,
        })
    })
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

fn processes(rows: &[ProcessRow]) -> Part {
    let head = ["process", "pid"].into_iter().chain(FlushReason::ALL.map(FlushReason::label)).map(String::from);
    let cells = |row: &ProcessRow| {
        [row.comm.clone(), row.pid.to_string()].into_iter().chain(row.flushes.map(|count| count.to_string())).collect()
    };
    Part::Table(head.collect(), rows.iter().take(PROCESSES).map(cells).collect())
}
