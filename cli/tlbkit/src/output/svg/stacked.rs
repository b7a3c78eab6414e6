//! Lying bars made of parts: shares of CPU by cause, shootdowns by where they went.

use super::axis::{Axis, Span};
use super::canvas::{Anchor, Canvas, WIDTH, text_width};
use super::legend::{self, Swatch};
use tlbkit_output::number;

/// Stacked bars of one plot.
#[derive(Clone, Debug)]
pub(crate) struct Stacked {
    /// The caption.
    pub(crate) title: String,
    /// What it shows, in words.
    pub(crate) about: String,
    /// The axis along the bars.
    pub(crate) x: Axis,
    /// What the parts are, in the order in which they are laid.
    pub(crate) parts: Vec<String>,
    /// From top to bottom.
    pub(crate) rows: Vec<StackedRow>,
}

/// One bar.
#[derive(Clone, Debug)]
pub(crate) struct StackedRow {
    /// Rows of one group stand together under its name; empty for none.
    pub(crate) group: String,
    /// Written to the left of the bar.
    pub(crate) label: String,
    /// One value per part.
    pub(crate) values: Vec<f64>,
    /// What all of them together are known to be below, where no more is known: they are then zero here.
    pub(crate) below: Option<f64>,
}

impl StackedRow {
    /// A number of this row, as it is written.
    fn text(&self, value: f64) -> String {
        self.below.map_or_else(|| number::plain(value), |limit| format!("<{}", number::short(limit)))
    }
}

const ROW: f64 = 20.0;
const BAR: f64 = 14.0;
/// Room for the total at the end of the longest bar.
const TOTAL: f64 = 58.0;

/// Draws the plot.
pub(super) fn draw(plot: &Stacked) -> Canvas {
    let mut canvas = Canvas::new();
    let entries: Vec<(Swatch, String)> =
        plot.parts.iter().enumerate().map(|(index, name)| (Swatch::Box(class(index), None), name.clone())).collect();
    let top = legend::draw(&mut canvas, &entries);
    // Names of groups are bold, so a little wider.
    let widest =
        plot.rows.iter().map(|row| text_width(&row.label).max(text_width(&row.group) * 1.1)).fold(0.0, f64::max);
    let left = (widest + 8.0).min(WIDTH * 0.45);
    let totals = plot.rows.iter().map(|row| row.values.iter().sum());
    let span = Span::new(plot.x.scale, totals, (left, WIDTH - TOTAL), 4);
    let bottom = top + height(plot);
    for tick in span.ticks() {
        canvas.line("grid", (tick.place, top), (tick.place, bottom));
        canvas.text("", Anchor::Middle, (tick.place, bottom + 14.0), &tick.label.unwrap_or_default());
    }
    canvas.text("axis", Anchor::Middle, ((left + WIDTH - TOTAL) / 2.0, bottom + 32.0), &plot.x.caption());
    canvas.reach(bottom + 40.0);
    draw_rows(&mut canvas, plot, &span, top, left);
    canvas.line("base", (span.place(0.0), top), (span.place(0.0), bottom));
    canvas
}

/// Colour of a part.
fn class(index: usize) -> String {
    format!("part s{}", index % 4)
}

/// Whether the row at `index` begins a group that has a name.
fn heads_group(plot: &Stacked, index: usize) -> bool {
    let group = &plot.rows[index].group;
    !group.is_empty() && (index == 0 || plot.rows[index - 1].group != *group)
}

fn height(plot: &Stacked) -> f64 {
    let heads = (0..plot.rows.len()).filter(|index| heads_group(plot, *index)).count();
    (plot.rows.len() + heads) as f64 * ROW + 4.0
}

fn draw_rows(canvas: &mut Canvas, plot: &Stacked, span: &Span, top: f64, left: f64) {
    let mut y = top;
    for (index, row) in plot.rows.iter().enumerate() {
        if heads_group(plot, index) {
            canvas.text("group", Anchor::Start, (2.0, y + 15.0), &row.group);
            y += ROW;
        }
        canvas.text("", Anchor::End, (left - 6.0, y + 14.0), &row.label);
        let mut sum = 0.0;
        for (part, value) in row.values.iter().enumerate() {
            let (from, to) = (span.place(sum), span.place(sum + value));
            let name = plot.parts.get(part).map_or("", String::as_str);
            let words = format!("{} {}, {name}: {} {}", row.group, row.label, row.text(*value), plot.x.unit);
            canvas.rect(&class(part), (from, y + 3.0), (to - from, BAR), words.trim());
            sum += value;
        }
        canvas.text("value", Anchor::Start, (span.place(sum) + 5.0, y + 14.0), &row.text(sum));
        y += ROW;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::svg::{Plot, Scale};

    fn row(group: &str, label: &str, values: &[f64]) -> StackedRow {
        StackedRow { group: group.into(), label: label.into(), values: values.to_vec(), below: None }
    }

    fn plot(rows: Vec<StackedRow>) -> Stacked {
        Stacked {
            title: "t".into(),
            about: "d".into(),
            x: Axis::new("share", "%", Scale::FromZero),
            parts: vec!["atomics".into(), "rest".into(), "more".into()],
            rows,
        }
    }

    #[test]
    fn parts_lie_end_to_end_and_their_sum_is_written() {
        let svg = Plot::Stacked(plot(vec![row("", "a", &[1.0, 2.0, 3.0])])).svg("x");
        let left = text_width("a") + 8.0;
        let unit = (WIDTH - TOTAL - left) / 6.0;
        for (part, from, value) in [("atomics", 0.0, 1.0), ("rest", 1.0, 2.0), ("more", 3.0, 3.0)] {
            let (x, width) = (left + from * unit, value * unit);
            let bar = format!(r#"x="{x:.1}" y="33.0" width="{width:.1}" height="14.0"><title>a, {part}: {value} %"#);
            assert!(svg.contains(&bar), "{bar} in {svg}");
        }
        let total = format!(r#"<text class="value" x="{:.1}""#, WIDTH - TOTAL + 5.0);
        assert!(svg.split(&total).nth(1).is_some_and(|rest| rest.contains(">6</text>")), "{svg}");
    }

    #[test]
    fn what_is_only_known_to_be_small_is_not_written_as_zero() {
        let unlisted = StackedRow { below: Some(0.05), ..row("", "b", &[0.0, 0.0]) };
        let svg = Plot::Stacked(plot(vec![row("", "a", &[1.0, 2.0]), unlisted])).svg("x");
        assert!(svg.contains(">&lt;0.05</text>") && !svg.contains(r#"class="value">0</text>"#), "{svg}");
        assert!(svg.contains("<title>b, rest: &lt;0.05 %</title>"), "{svg}");
    }

    #[test]
    fn a_group_is_named_once() {
        let rows = vec![row("REMOVE_PTE", "before", &[1.0, 1.0]), row("REMOVE_PTE", "after", &[1.0, 0.0])];
        let svg = Plot::Stacked(plot(rows)).svg("x");
        assert_eq!(svg.matches(r#"class="group""#).count(), 1);
    }
}
