//! What a recording shows without any replay, as parts of a page.

use tlbkit_output::svg::{Axis, BarGroup, Bars, Chart, Curve, Draw, Ink, Plot, Point, Scale};
use tlbkit_trace::summary::ProgramRow;
use tlbkit_trace::{FlushReason, FlushSize, Summary};

use crate::sheet::SheetPart;

/// Points along the axis of time: about as many as a phone can tell apart.
const MOMENTS: usize = 80;
/// Names of processes that have a row.
const PROGRAMS: usize = 30;

/// Classes of sizes, as Linux's ceiling makes them differ.
const CLASSES: [(&str, u64, u64); 5] =
    [("0", 0, 0), ("1", 1, 1), ("2-8", 2, 8), ("9-33", 9, 33), ("34-", 34, u64::MAX)];

/// Flushes over time, by size, and what they took where that was recorded.
pub(crate) fn plots(summary: &Summary) -> Vec<Plot> {
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

/// Who flushes most.
pub(crate) fn programs(summary: &Summary) -> SheetPart {
    let head = ["name", "processes"].into_iter().chain(FlushReason::ALL.map(FlushReason::label)).map(String::from);
    let cells = |row: &ProgramRow| {
        let counts = row.flushes.map(|count| count.to_string());
        [row.comm.clone(), row.processes.to_string()].into_iter().chain(counts).collect()
    };
    SheetPart::Table(head.collect(), summary.programs().iter().take(PROGRAMS).map(cells).collect())
}
