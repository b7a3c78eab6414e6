//! The advice of `tune` as a page.

use std::path::Path;

use anyhow::Result;

use super::advice::{Advice, Tuned, cells, head, verdict};
use crate::lab::trace::agreement_cells;
use crate::output::sheet::{self, Sheet, SheetPart};
use crate::output::svg::{Axis, Chart, Curve, Draw, Ink, Plot, Point, Scale};

/// Writes the page.
pub(super) fn write(tuned: &Tuned, path: &Path) -> Result<()> {
    let agreement = agreement_cells(&tuned.trace.agreement(&tuned.recorder));
    let mut parts = vec![SheetPart::Heading("What to do".into())];
    for (words, commands) in verdict(tuned) {
        parts.push(SheetPart::Words(words));
        parts.extend((!commands.is_empty()).then(|| SheetPart::Commands(commands.to_vec())));
    }
    parts.extend([
        SheetPart::Heading("What was tried".into()),
        SheetPart::Plots(vec![ceilings(tuned)]),
        SheetPart::Table(head(tuned), cells(tuned)),
        SheetPart::Heading("How far to trust it".into()),
        SheetPart::Table(agreement.0, agreement.1),
    ]);
    sheet::write(&Sheet { title: format!("{}, tuned", tuned.trace.name), about: tuned.trace.about(), parts }, path)
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
        title: "Gain by ceiling, from one page on".into(),
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
