//! Upright bars in groups: one group a policy, in it one bar for the document and one for us.

use super::axis::{Axis, Span};
use super::canvas::{Anchor, Canvas, WIDTH, text_width};
use super::legend::{self, Ink, Swatch};
use tlbkit_output::number;

/// Bars of one plot.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// The caption.
    pub(crate) title: String,
    /// What it shows, in words.
    pub(crate) about: String,
    /// What the groups are; empty if their labels say it.
    pub(crate) x: String,
    /// The upright axis.
    pub(crate) y: Axis,
    /// Whose numbers the bars of a group are, with their name in the legend.
    pub(crate) series: Vec<(Ink, String)>,
    /// From left to right.
    pub(crate) groups: Vec<BarGroup>,
}

/// Bars that belong together.
#[derive(Clone, Debug)]
pub(crate) struct BarGroup {
    /// Written under them.
    pub(crate) label: String,
    /// One per series; none where there is no number.
    pub(crate) values: Vec<Option<f64>>,
}

const LEFT: f64 = 50.0;
const PLOT_HEIGHT: f64 = 190.0;
/// A bar narrower than this has no room for its number.
const LABELLED_WIDTH: f64 = 34.0;

/// The id of the hatching of the drawing `id`; one per drawing, as ids are shared by the page.
fn hatch(id: &str) -> String {
    format!("{id}-hatch")
}

/// Class and pattern of a bar.
fn look(ink: Ink, id: &str) -> (&'static str, Option<String>) {
    match ink {
        Ink::Published => ("bar published c0", Some(hatch(id))),
        Ink::Ours => ("bar ours c0", None),
    }
}

/// Draws the plot.
pub(super) fn draw(plot: &Bars, id: &str) -> Canvas {
    let mut canvas = Canvas::new();
    canvas.define(&format!(
        concat!(
            r#"<pattern id="{}" class="hatch" width="6" height="6" patternUnits="userSpaceOnUse" "#,
            r#"patternTransform="rotate(45)"><rect width="6" height="6"/><line x1="0" y1="0" x2="0" y2="6"/></pattern>"#
        ),
        hatch(id)
    ));
    let entries: Vec<(Swatch, String)> = plot
        .series
        .iter()
        .map(|(ink, name)| {
            let (class, pattern) = look(*ink, id);
            (Swatch::Box(class.to_owned(), pattern), name.clone())
        })
        .collect();
    let top = legend::draw(&mut canvas, &entries);
    canvas.text("axis", Anchor::Start, (2.0, top + 6.0), &plot.y.caption());
    let area = (top + 22.0, top + 22.0 + PLOT_HEIGHT);
    let values = plot.groups.iter().flat_map(|group| group.values.iter().copied().flatten());
    let span = Span::new(plot.y.scale, values, (area.1, area.0), 5);
    for tick in span.ticks() {
        canvas.line("grid", (LEFT, tick.place), (WIDTH, tick.place));
        canvas.text("", Anchor::End, (LEFT - 6.0, tick.place + 4.0), &tick.label.unwrap_or_default());
    }
    let width = (WIDTH - LEFT) / plot.groups.len().max(1) as f64;
    for (index, group) in plot.groups.iter().enumerate() {
        draw_group(&mut canvas, plot, group, &span, (LEFT + index as f64 * width, width), id);
    }
    let zero = span.place(0.0);
    canvas.line("base", (LEFT, zero), (WIDTH, zero));
    if !plot.x.is_empty() {
        canvas.text("axis", Anchor::Middle, ((LEFT + WIDTH) / 2.0, area.1 + 33.0), &plot.x);
        canvas.reach(area.1 + 41.0);
    }
    canvas
}

/// One group in the column that starts at `column.0` and is `column.1` wide.
fn draw_group(canvas: &mut Canvas, plot: &Bars, group: &BarGroup, span: &Span, column: (f64, f64), id: &str) {
    let (left, width) = column;
    let bar = (width * 0.8 / plot.series.len().max(1) as f64).min(46.0);
    let first = left + (width - bar * plot.series.len() as f64) / 2.0;
    let zero = span.place(0.0);
    for (index, ((ink, name), value)) in plot.series.iter().zip(&group.values).enumerate() {
        let Some(value) = value else { continue };
        let (x, y) = (first + index as f64 * bar, span.place(*value));
        let (class, pattern) = look(*ink, id);
        let label = format!("{}, {name}: {} {}", group.label, number::plain(*value), plot.y.unit);
        let size = (bar - 2.0, (y - zero).abs());
        canvas.rect_filled(class, pattern.as_deref().unwrap_or(""), (x + 1.0, y.min(zero)), size, &label);
        if bar >= LABELLED_WIDTH {
            canvas.text("value", Anchor::Middle, (x + bar / 2.0, y.min(zero) - 4.0), &number::plain(*value));
        }
    }
    let bottom = span.ticks().first().map_or(zero, |tick| tick.place);
    for (index, line) in wrapped(&group.label, width).iter().enumerate() {
        let y = bottom + 15.0 + index as f64 * 14.0;
        canvas.text("", Anchor::Middle, (left + width / 2.0, y), line);
        canvas.reach(y + 8.0);
    }
}

/// Words of `label` on as many lines as the column needs.
fn wrapped(label: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(word) + text_width(" ") <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::svg::{Plot, Scale};

    fn plot(values: Vec<Option<f64>>) -> String {
        let bars = Bars {
            title: "time".into(),
            about: "d".into(),
            x: "kernels".into(),
            y: Axis::new("time", "us", Scale::FromZero),
            series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
            groups: vec![BarGroup { label: "patched, nopcid".into(), values }],
        };
        Plot::Bars(bars).svg("x")
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let svg = plot(vec![Some(1.0), Some(2.0)]);
        assert!(svg.contains(r#"height="95.0"><title>patched, nopcid, published: 1 us"#), "{svg}");
        assert!(svg.contains(r#"height="190.0"><title>patched, nopcid, ours: 2 us"#), "{svg}");
    }

    #[test]
    fn a_missing_value_draws_no_bar() {
        assert!(!plot(vec![None, Some(2.0)]).contains("nopcid, published"));
    }

    #[test]
    fn long_labels_wrap_between_words() {
        assert_eq!(wrapped("patched, nopcid", 80.0), ["patched,", "nopcid"]);
        assert_eq!(wrapped("patched, nopcid", 120.0), ["patched, nopcid"]);
    }
}
