//! Small multiples of ratios: a panel beside the other, all with the same rows, and in each row a mark for each thing
//! that is compared, along one logarithmic axis. Right of the line at one is better.

use super::axis::{Axis, Scale, Span};
use super::canvas::{Anchor, Canvas, WIDTH, text_width};
use super::legend::{self, Ink, Swatch, mark, whisker};
use tlbkit_output::number;

/// The panels of one plot.
#[derive(Clone, Debug)]
pub(crate) struct Panels {
    /// The caption.
    pub(crate) title: String,
    /// What it shows, in words.
    pub(crate) about: String,
    /// What the axis shows.
    pub(crate) axis: String,
    /// What is compared, at most four, each with a shape of its own.
    pub(crate) tones: Vec<String>,
    /// From left to right.
    pub(crate) panels: Vec<Panel>,
    /// From top to bottom.
    pub(crate) rows: Vec<PanelRow>,
}

/// One panel.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Written above it.
    pub(crate) title: String,
}

/// One row of all panels.
#[derive(Clone, Debug)]
pub(crate) struct PanelRow {
    /// Written to the left.
    pub(crate) label: String,
    /// For each panel a ratio of each tone, if it is known.
    pub(crate) cells: Vec<Vec<Option<Ratio>>>,
}

/// A ratio and the ends of its interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) ends: [f64; 2],
}

/// How far the marks of a row lie apart, one below the other.
const APART: f64 = 6.0;
const LABEL_GAP: f64 = 8.0;
const PANEL_GAP: f64 = 12.0;

/// Draws the plot.
pub(super) fn draw(plot: &Panels) -> Canvas {
    let mut canvas = Canvas::new();
    let entries: Vec<_> =
        plot.tones.iter().enumerate().map(|(tone, name)| (Swatch::Mark(tone, Ink::Ours), name.clone())).collect();
    let top = legend::draw(&mut canvas, &entries) + 18.0;
    let row_height = (plot.tones.len() + 1) as f64 * APART;
    let middle = |index: usize| top + (index as f64 + 0.5) * row_height + 1.0;
    let bottom = top + plot.rows.len() as f64 * row_height + 2.0;
    let widest = plot.rows.iter().map(|row| text_width(&row.label)).fold(0.0, f64::max);
    let left = widest.min(WIDTH * 0.35) + LABEL_GAP;
    for (index, row) in plot.rows.iter().enumerate() {
        canvas.text("", Anchor::End, (left - LABEL_GAP, middle(index) + 4.0), &row.label);
    }
    let width = (WIDTH - left) / plot.panels.len() as f64;
    let ratios = || plot.rows.iter().flat_map(|row| &row.cells).flatten().flatten();
    for (at, panel) in plot.panels.iter().enumerate() {
        let from = left + at as f64 * width;
        let to = from + width - PANEL_GAP;
        // An interval that reaches farther than all ratios is cut.
        let values = ratios().map(|ratio| ratio.value).chain([0.8, 1.25]);
        let span = Span::new(Scale::Log, values, (from, to), 4);
        canvas.text("group", Anchor::Middle, ((from + to) / 2.0, top - 6.0), &panel.title);
        let mut written = f64::NEG_INFINITY;
        for tick in span.ticks() {
            canvas.line("grid", (tick.place, top), (tick.place, bottom));
            let Some(label) = tick.label else { continue };
            let half = text_width(&label) / 2.0;
            if tick.place - half > written + LABEL_GAP / 2.0 {
                canvas.text("", Anchor::Middle, (tick.place, bottom + 14.0), &label);
                written = tick.place + half;
            }
        }
        canvas.line("base", (span.place(1.0), top), (span.place(1.0), bottom));
        for (index, row) in plot.rows.iter().enumerate() {
            for (tone, ratio) in row.cells[at].iter().enumerate() {
                let Some(Ratio { value, ends }) = *ratio else { continue };
                let y = middle(index) + (tone as f64 - (plot.tones.len() as f64 - 1.0) / 2.0) * APART;
                let said = format!("{}, {}, {}: {}", row.label, panel.title, plot.tones[tone], number::plain(value));
                canvas.begin_labelled(&said);
                let [low, high] = ends.map(|end| span.place(end).clamp(from, to));
                canvas.line(&whisker(tone), (low, y), (high, y));
                mark(&mut canvas, tone, Ink::Ours, (span.place(value), y));
                canvas.end_labelled();
            }
        }
    }
    let caption = Axis::new(&plot.axis, "", Scale::Log).caption();
    canvas.text("axis", Anchor::Middle, ((left + WIDTH) / 2.0, bottom + 32.0), &caption);
    canvas.reach(bottom + 40.0);
    canvas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::svg::Plot;

    #[test]
    fn each_known_ratio_has_a_mark_in_its_panel() {
        let ratio = Some(Ratio { value: 2.0, ends: [1.5, 2.5] });
        let row = PanelRow { label: "ebizzy".into(), cells: vec![vec![ratio, None], vec![None, ratio]] };
        let panels = ["8 CPUs", "128 CPUs"].map(|title| Panel { title: title.into() }).to_vec();
        let tones = vec!["one".into(), "two".into()];
        let plot = Panels { title: "t".into(), about: "d".into(), axis: "a".into(), tones, panels, rows: vec![row] };
        let svg = Plot::Panels(plot).svg("x");
        assert_eq!((svg.matches("mark ours").count(), svg.matches("whisker").count()), (2 + 2, 2), "{svg}");
        assert!(svg.contains("<title>ebizzy, 8 CPUs, one: 2</title>"), "{svg}");
        assert!(svg.contains("<title>ebizzy, 128 CPUs, two: 2</title>"), "{svg}");
    }
}
