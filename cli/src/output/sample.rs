//! A full report for tests: the published numbers, and beside them the same plus a little.
//!
//! With `TLBKIT_SAMPLE_REPORT` set, the test at the end writes it into that folder, for a look in a browser.

use super::listing::{SizeRow, line};
use super::report::{Report, Section, Table};
use super::svg::{Axis, BarGroup, Bars, Chart, Curve, Draw, Ink, Plot, Point, Scale, Stacked, StackedRow};
use crate::experiment::{Expected, Experiment, ids};
use crate::figure::Figure;

/// How far the sample is off.
const OFF: f64 = 1.05;

/// Every section filled.
pub(crate) fn report() -> Report {
    let sections = ids().map(|id| section(&Experiment::builtin(id).unwrap())).to_vec();
    Report {
        title: "Five published results, reproduced".into(),
        about: "Each result is set beside what the library gives on a simulated multiprocessor.".into(),
        command: "tlbkit reproduce".into(),
        sections,
        compared: vec![Table::Grid {
            title: "pingpong, 512 pages, skylake-laptop-kvm".into(),
            head: ["policy", "IPIs", "full flushes", "single-page flushes", "walks", "lost cycles", "needed / sent"]
                .map(String::from)
                .to_vec(),
            rows: ["linux-4.13", "linux-4.14", "linux-6.18", "netbsd-10", "freebsd-14"]
                .map(|name| [name, "0", "404297", "0", "207 M", "8 900 M", "-"].map(String::from).to_vec())
                .to_vec(),
        }],
        fitted: vec![Table::Grid {
            title: "Machine skylake-desktop-pti".into(),
            head: ["number", "value", "unit", "kind", "source"].map(String::from).to_vec(),
            rows: vec![["invlpg", "195", "cycles", "calibrated", "rows 1 and 129"].map(String::from).to_vec()],
        }],
    }
}

fn section(experiment: &Experiment) -> Section {
    let figures = experiment.expected.iter().map(|expected| Figure::new(expected, ours(expected))).collect();
    let mut section = Section::new(experiment, experiment.judge(figures));
    section.plots = match experiment.id.as_str() {
        "pcid" => pcid_plots(experiment),
        "lazy" => vec![lazy_plot()],
        "batch" => vec![batch_plot()],
        "pti" => vec![pti_plot(experiment)],
        _ => vec![range_plot(experiment), gain_plot(experiment)],
    };
    if experiment.id == "pti" {
        section.tables = vec![size_table(experiment, "invpcid"), size_table(experiment, "cr3")];
    }
    section.notes = vec!["A note says what the model lacks where a prediction misses.".into()];
    section
}

/// The published value and a little more, or the middle of the band.
fn ours(expected: &Expected) -> f64 {
    match (expected.published, expected.band) {
        (Some(value), Some([low, high])) => (value * OFF).clamp(low, high),
        (Some(value), None) => value * OFF,
        (None, Some([low, high])) => (low + high) / 2.0,
        (None, None) => 3.0,
    }
}

fn published(experiment: &Experiment, quantity: &str) -> Option<f64> {
    experiment.expected.iter().find(|expected| expected.quantity == quantity)?.published
}

fn both() -> Vec<(Ink, String)> {
    vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())]
}

fn pcid_plots(experiment: &Experiment) -> Vec<Plot> {
    let plot = |title: &str, measure: &str, pages: u32, unit: &str| {
        let group = |(id, label): (&str, &str)| {
            let value = published(experiment, &format!("{measure}, pages {pages}, {id}"));
            BarGroup { label: label.into(), values: vec![value, value.map(|value| value * OFF)] }
        };
        Plot::Bars(Bars {
            title: title.into(),
            about: format!("{title}: published and ours for three kernels"),
            x: String::new(),
            y: Axis::new(measure, unit, Scale::FromZero),
            series: both(),
            groups: [("pcid", "patched"), ("nopcid", "patched, nopcid"), ("unpatched", "unpatched")]
                .map(group)
                .to_vec(),
        })
    };
    vec![
        plot("Ping-pong, no pages touched", "time", 0, "us"),
        plot("Ping-pong, 512 pages touched", "time", 512, "us"),
        plot("Page walks, 512 pages touched", "walks", 512, "M walks"),
    ]
}

fn lazy_plot() -> Plot {
    let row = |group: &str, label: &str, values: [f64; 2]| StackedRow {
        group: group.into(),
        label: label.into(),
        values: values.to_vec(),
    };
    Plot::Stacked(Stacked {
        title: "Share of CPU in the switch path".into(),
        about: "Atomic operations and the rest, by idle task and server, before and after the series".into(),
        x: Axis::new("share of CPU", "%", Scale::FromZero),
        parts: vec!["CPU-set atomics".into(), "the rest".into()],
        rows: vec![
            row("without the series", "swapper, published", [0.475, 0.475]),
            row("without the series", "swapper, ours", [0.5, 0.497]),
            row("without the series", "server, published", [0.385, 0.385]),
            row("without the series", "server, ours", [0.40, 0.41]),
            row("with the series", "swapper, published", [0.0, 0.87]),
            row("with the series", "swapper, ours", [0.0, 0.91]),
            row("with the series", "server, published", [0.0, 0.0]),
            row("with the series", "server, ours", [0.0, 0.0]),
        ],
    })
}

fn batch_plot() -> Plot {
    let reasons = ["APTE", "KENTER", "KREMOVE", "FREE_PTP1", "REMOVE_PTES", "WRITE_PROTECT", "UPDATE"];
    let mut rows = Vec::new();
    for (index, reason) in reasons.into_iter().enumerate() {
        let base = 400_000.0 / (index + 1) as f64;
        let row = |label: &str, share: f64| StackedRow {
            group: reason.into(),
            label: label.into(),
            values: [0.5, 0.3, 0.2].map(|part| (base * part * share).round()).to_vec(),
        };
        rows.push(row("5.0", 1.0));
        rows.push(row("batched", 0.45));
    }
    Plot::Stacked(Stacked {
        title: "Shootdowns by reason".into(),
        about: "For each reason, shootdowns that stayed local, went to other CPUs, or were for the kernel".into(),
        x: Axis::new("shootdowns", "", Scale::FromZero),
        parts: ["local", "remote", "kernel"].map(String::from).to_vec(),
        rows,
    })
}

fn pti_plot(experiment: &Experiment) -> Plot {
    let mut curves = Vec::new();
    for (tone, (id, name)) in [("invpcid", "INVPCID"), ("cr3", "deferred CR3")].into_iter().enumerate() {
        let table = experiment.table(id).unwrap();
        let points = |factor: f64| table.rows.iter().map(|row| Point::new(row[0], row[3] * factor)).collect();
        let curve = |ink, draw, what: &str, points| Curve { label: format!("{name}, {what}"), ink, tone, draw, points };
        curves.push(curve(Ink::Ours, Draw::Line, "ours", points(OFF)));
        curves.push(curve(Ink::Published, Draw::Points, "published", points(1.0)));
    }
    Plot::Chart(Chart {
        title: "Cycles of a flush against its pages".into(),
        about: "Both methods on logarithmic axes: published points, our lines".into(),
        x: Axis::new("pages of the flush", "", Scale::Log),
        y: Axis::new("mean time", "cycles", Scale::Log),
        curves,
    })
}

fn range_plot(experiment: &Experiment) -> Plot {
    let (means, spreads) = (experiment.table("mean").unwrap(), experiment.table("stddev").unwrap());
    let mut curves = Vec::new();
    for (tone, id) in ["vanilla", "altershift", "nowalk"].into_iter().enumerate() {
        let cells = |table: &crate::experiment::PublishedTable| table.column(id).unwrap();
        for (ink, factor, what) in [(Ink::Published, 1.0, "published"), (Ink::Ours, OFF, "ours")] {
            let points = means.column("threads").unwrap().into_iter().zip(cells(means).into_iter().zip(cells(spreads)));
            let points = points.map(|(x, (y, spread))| Point { x, y: y * factor, spread: Some(spread) }).collect();
            curves.push(Curve { label: format!("{id}, {what}"), ink, tone, draw: Draw::Both, points });
        }
    }
    Plot::Chart(Chart {
        title: "ebizzy: records per second against threads".into(),
        about: "Three policies with standard deviations: published dashed, ours solid".into(),
        x: Axis::new("threads", "", Scale::Around),
        y: Axis::new("rate", "records/s", Scale::Around),
        curves,
    })
}

fn gain_plot(experiment: &Experiment) -> Plot {
    let groups = (1..=8)
        .map(|threads| (threads, published(experiment, &format!("gain, threads {threads}, nowalk"))))
        .map(|(threads, value)| BarGroup {
            label: threads.to_string(),
            values: vec![value, value.map(|value| value * OFF)],
        });
    Plot::Bars(Bars {
        title: "Gain of nowalk over vanilla, by threads".into(),
        about: "Published and our gain for one to eight threads".into(),
        x: "threads".into(),
        y: Axis::new("gain", "%", Scale::FromZero),
        series: both(),
        groups: groups.collect(),
    })
}

fn size_table(experiment: &Experiment, id: &str) -> Table {
    let table = experiment.table(id).unwrap();
    let lines = table.rows.iter().map(|row| line(&SizeRow::from_cells(row).unwrap())).collect();
    Table::Listing { title: table.title.clone(), lines }
}

#[test]
fn the_sample_is_good_and_can_be_looked_at() {
    let report = report();
    assert!(report.sections.iter().all(|section| crate::figure::all_ok(&section.figures)));
    if let Some(folder) = std::env::var_os("TLBKIT_SAMPLE_REPORT") {
        super::html::write(&report, folder.as_ref()).unwrap();
    }
}
