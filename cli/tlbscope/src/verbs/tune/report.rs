//! The advice of `tune` as a page.

use std::path::Path;

use anyhow::Result;
use tlbkit_output::svg::{Axis, Chart, Curve, Draw, Ink, Plot, Point, RangeRow, Ranges, Scale};

use super::advice::{Advice, Tuned, cells, head};
use super::verdict::{headline, verdict};
use crate::sheet::{self, Sheet, SheetPart};

/// What the settings are.
const KNOBS: &str = "ceiling: pages up to which a flush goes page by page; above it the whole space is dropped. pcid: \
    tags, by which the TLB keeps entries of several spaces. pti: page-table isolation, the guard against Meltdown. \
    thp: transparent huge pages, of 2 MiB. allocator: the program as if it kept the memory that it gives back.";

/// Writes the page.
pub(super) fn write(tuned: &Tuned, path: &Path) -> Result<()> {
    let mut parts = vec![SheetPart::Heading("What to do".into())];
    for (words, commands) in verdict(tuned) {
        parts.push(SheetPart::Words(words));
        parts.extend((!commands.is_empty()).then(|| SheetPart::Commands(commands.to_vec())));
    }
    parts.extend([
        SheetPart::Heading("What was tried".into()),
        SheetPart::Plots(plots(tuned)),
        SheetPart::Words(KNOBS.into()),
        SheetPart::Table(head(tuned), cells(tuned)),
        SheetPart::Heading("How far to trust it".into()),
    ]);
    parts.extend(tuned.trace.agreement_parts(&tuned.recorder));
    let (title, about) = (format!("{}, tuned", tuned.trace.name), tuned.trace.about());
    sheet::write(&Sheet { title, verdict: Some(headline(tuned)), about, parts }, path)
}

/// The gains as pictures; none where they mean nothing.
fn plots(tuned: &Tuned) -> Vec<Plot> {
    if tuned.disorder().is_some() { Vec::new() } else { vec![gains(tuned), ceilings(tuned)] }
}

/// The likeliest setting of each knob.
fn gains(tuned: &Tuned) -> Plot {
    let row = |advice: &&Advice| {
        let percent = |cycles: f64| 100.0 * cycles / tuned.cpu_cycles;
        let (gain, setting) = (&advice.gain, &advice.setting);
        RangeRow {
            label: format!("{} {}: {}", setting.knob, setting.value, advice.worth.label()),
            value: percent(gain.value),
            low: percent(gain.low),
            high: percent(gain.high),
        }
    };
    Plot::Ranges(Ranges {
        title: "Gain of each knob's likeliest setting (bar), at least and at most (whisker)".into(),
        about: "For each knob the likely gain of one setting as a bar, and the least and the most as a whisker".into(),
        x: Axis::new("gain", "% of CPU time", Scale::FromZero),
        rows: tuned.best_of(|_| true).iter().map(row).collect(),
    })
}

/// Least, likely and most gain against the ceiling.
fn ceilings(tuned: &Tuned) -> Plot {
    let curve = |tone: usize, label: &str, end: fn(&tlbkit_replay::Estimate) -> f64| {
        let point = |advice: &Advice| {
            let pages = advice.setting.ceiling.filter(|&pages| pages > 0)?;
            Some(Point::new(f64::from(pages), 100.0 * end(&advice.gain) / tuned.cpu_cycles))
        };
        let points = tuned.advice.iter().filter_map(point).collect();
        Curve { label: label.to_owned(), ink: Ink::Ours, tone, draw: Draw::Both, points }
    };
    Plot::Chart(Chart {
        title: "Gain by ceiling of one page and more".into(),
        about: "Gain in percent of CPU time against the ceiling in pages: least, likely and most".into(),
        x: Axis::new("ceiling", "pages", Scale::Log),
        y: Axis::new("gain", "% of CPU time", Scale::Around),
        curves: vec![
            curve(1, "at least", |gain| gain.low),
            curve(0, "likely", |gain| gain.value),
            curve(2, "at most", |gain| gain.high),
        ],
    })
}
