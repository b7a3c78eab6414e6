//! What was predicted by what was published: a row for each result, a mark for each figure along a logarithmic axis,
//! and a band around one. Where the filled marks lie in it, the simulator may be trusted.

use super::axis::{Axis, Scale, Span};
use super::canvas::{Anchor, Canvas, WIDTH, text_width};
use super::legend::{self, Ink, Swatch, mark};
use tlbkit_output::number;

/// How far from one the band reaches.
const BAND: f64 = 0.25;

/// Ratios of one plot.
#[derive(Clone, Debug)]
pub(crate) struct Ratios {
    /// The caption.
    pub(crate) title: String,
    /// What it shows, in words.
    pub(crate) about: String,
    /// From top to bottom.
    pub(crate) rows: Vec<RatioRow>,
}

/// One result.
#[derive(Clone, Debug)]
pub(crate) struct RatioRow {
    /// Written to the left.
    pub(crate) label: String,
    /// Of each figure what it is called, ours by the published value, and the null model's by it.
    pub(crate) marks: Vec<(String, f64, Option<f64>)>,
}

impl RatioRow {
    /// How many of our figures lie in the band.
    pub(crate) fn held(&self) -> usize {
        self.marks.iter().filter(|(_, ours, _)| (ours - 1.0).abs() <= BAND).count()
    }

    /// How many of the null models' do, and how many there are.
    pub(crate) fn held_by_null(&self) -> [usize; 2] {
        let nulls = || self.marks.iter().filter_map(|(.., null)| *null);
        [nulls().filter(|null| (null - 1.0).abs() <= BAND).count(), nulls().count()]
    }
}

const ROW: f64 = 22.0;
/// How far our marks lie above the middle of their row, and the null models' below.
const APART: f64 = 4.0;
/// Between a label and the marks.
const LABEL_GAP: f64 = 10.0;
/// Room for how many lie in the band.
const HELD: f64 = 62.0;

/// Draws the plot.
pub(super) fn draw(plot: &Ratios) -> Canvas {
    let mut canvas = Canvas::new();
    let entries = [(Swatch::Mark(0, Ink::Ours), "predicted"), (Swatch::Mark(1, Ink::Published), "null model")];
    let top = legend::draw(&mut canvas, &entries.map(|(swatch, words)| (swatch, words.to_owned())));
    canvas.text("axis", Anchor::End, (WIDTH, 16.0), "within 25 %");
    let widest = plot.rows.iter().map(|row| text_width(&row.label)).fold(0.0, f64::max);
    let left = (widest + LABEL_GAP).min(WIDTH * 0.48);
    let marks = || plot.rows.iter().flat_map(|row| &row.marks);
    let ends = marks().flat_map(|(_, ours, null)| [Some(*ours), *null]).flatten().chain([0.5, 2.0]);
    let span = Span::new(Scale::Log, ends, (left, WIDTH - HELD), 5);
    let bottom = top + plot.rows.len() as f64 * ROW + 4.0;
    let [low, high] = [1.0 - BAND, 1.0 + BAND].map(|end| span.place(end));
    canvas.rect("band", (low, top), (high - low, bottom - top), "within 25 % of what was published");
    for tick in span.ticks().into_iter().filter(|tick| tick.label.is_some()) {
        canvas.line("grid", (tick.place, top), (tick.place, bottom));
        canvas.text("", Anchor::Middle, (tick.place, bottom + 14.0), &tick.label.unwrap_or_default());
    }
    canvas.line("base", (span.place(1.0), top), (span.place(1.0), bottom));
    for (index, row) in plot.rows.iter().enumerate() {
        let middle = top + (index as f64 + 0.5) * ROW + 2.0;
        canvas.text("", Anchor::End, (left - LABEL_GAP, middle + 4.0), &row.label);
        for null in row.marks.iter().filter_map(|(.., null)| *null) {
            mark(&mut canvas, 1, Ink::Published, (span.place(null), middle + APART));
        }
        for (name, ours, _) in &row.marks {
            canvas.begin_labelled(&format!("{}, {name}: {} of what was published", row.label, number::plain(*ours)));
            mark(&mut canvas, 0, Ink::Ours, (span.place(*ours), middle - APART));
            canvas.end_labelled();
        }
        let held = format!("{} of {}", row.held(), row.marks.len());
        canvas.text("", Anchor::End, (WIDTH, middle + 4.0), &held);
    }
    let caption = Axis::new("predicted divided by published", "", Scale::Log).caption();
    canvas.text("axis", Anchor::Middle, ((left + WIDTH - HELD) / 2.0, bottom + 32.0), &caption);
    canvas.reach(bottom + 40.0);
    canvas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::svg::Plot;

    #[test]
    fn each_figure_has_a_mark_and_those_in_the_band_are_counted() {
        let marks =
            vec![("one".into(), 0.75, Some(4.0)), ("two".into(), 1.26, None), ("three".into(), 1.25, Some(1.0))];
        let row = RatioRow { label: "milan".into(), marks };
        assert_eq!((row.held(), row.held_by_null()), (2, [1, 2]));
        let svg = Plot::Ratios(Ratios { title: "t".into(), about: "d".into(), rows: vec![row] }).svg("x");
        assert_eq!((svg.matches("mark ours").count(), svg.matches("mark published").count()), (3 + 1, 2 + 1), "{svg}");
        assert!(svg.contains(">2 of 3</text>") && svg.contains("<title>milan, two: 1.26 of what"), "{svg}");
    }
}
