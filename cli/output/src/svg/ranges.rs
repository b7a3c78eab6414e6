//! Lying bars with whiskers: likely gains, each with the least and the most that it may be.

use super::axis::{Axis, Span};
use super::canvas::{Anchor, Canvas, WIDTH, text_width};
use crate::number;

/// Ranges of one plot.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// The caption.
    pub title: String,
    /// What it shows, in words.
    pub about: String,
    /// The axis along the bars, which begin at zero.
    pub x: Axis,
    /// From top to bottom.
    pub rows: Vec<RangeRow>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct RangeRow {
    /// Written above it.
    pub label: String,
    /// Where the bar ends.
    pub value: f64,
    /// The lower end of its whisker.
    pub low: f64,
    /// The upper end of its whisker.
    pub high: f64,
}

const LEFT: f64 = 14.0;
const RIGHT: f64 = 14.0;
const ROW: f64 = 40.0;
const BAR: f64 = 12.0;
/// Half the length of the lines at a whisker's ends.
const CAP: f64 = 5.0;

/// Draws the plot.
pub(super) fn draw(plot: &Ranges) -> Canvas {
    let mut canvas = Canvas::new();
    let ends = plot.rows.iter().flat_map(|row| [row.low, row.value, row.high]);
    let span = Span::new(plot.x.scale, ends, (LEFT, WIDTH - RIGHT), 4);
    let bottom = plot.rows.len() as f64 * ROW + 4.0;
    for tick in span.ticks() {
        canvas.line("grid", (tick.place, 0.0), (tick.place, bottom));
        canvas.text("", Anchor::Middle, (tick.place, bottom + 14.0), &tick.label.unwrap_or_default());
    }
    let zero = span.place(0.0);
    canvas.line("base", (zero, 0.0), (zero, bottom));
    for (index, row) in plot.rows.iter().enumerate() {
        draw_row(&mut canvas, plot, row, &span, index as f64 * ROW);
    }
    canvas.text("axis", Anchor::Middle, (WIDTH / 2.0, bottom + 32.0), &plot.x.caption());
    canvas.reach(bottom + 40.0);
    canvas
}

fn draw_row(canvas: &mut Canvas, plot: &Ranges, row: &RangeRow, span: &Span, top: f64) {
    let RangeRow { label, value, low, high } = row;
    canvas.text("group", Anchor::Start, (2.0, top + 14.0), &shortened(label, WIDTH));
    let (zero, end, middle) = (span.place(0.0), span.place(*value), top + 20.0 + BAR / 2.0);
    let [value, low_text, high_text] = [*value, *low, *high].map(number::plain);
    let words = format!("{label}: {value} {unit} ({low_text} to {high_text} {unit})", unit = plot.x.unit);
    canvas.rect("bar ours c0", (zero.min(end), middle - BAR / 2.0), ((end - zero).abs(), BAR), &words);
    let (from, to) = (span.place(*low), span.place(*high));
    canvas.line("base", (from, middle), (to, middle));
    for end in [from, to] {
        canvas.line("base", (end, middle - CAP), (end, middle + CAP));
    }
}

/// As much of `label` as there is room for.
fn shortened(label: &str, width: f64) -> String {
    if text_width(label) <= width {
        return label.to_owned();
    }
    let mut short = String::new();
    for c in label.chars() {
        short.push(c);
        if text_width(&short) > width - text_width("\u{2026}") {
            break;
        }
    }
    short.pop();
    short + "\u{2026}"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::{Plot, Scale};

    fn plot(rows: Vec<RangeRow>) -> String {
        let x = Axis::new("gain", "%", Scale::FromZero);
        Plot::Ranges(Ranges { title: "t".into(), about: "d".into(), x, rows }).svg("x")
    }

    fn row(low: f64, value: f64, high: f64) -> RangeRow {
        RangeRow { label: "thp always".into(), value, low, high }
    }

    #[test]
    fn a_bar_goes_from_zero_to_its_value_and_its_whisker_from_end_to_end() {
        let svg = plot(vec![row(-5.0, 4.0, 10.0)]);
        // Fifteen units over what is left of the width.
        let unit = (WIDTH - LEFT - RIGHT) / 15.0;
        let (zero, length) = (LEFT + 5.0 * unit, 4.0 * unit);
        let bar =
            format!(r#"x="{zero:.1}" y="20.0" width="{length:.1}" height="12.0"><title>thp always: 4 % (-5 to 10 %)"#);
        assert!(svg.contains(&bar), "{bar} in {svg}");
        let whisker = format!(r#"x1="{LEFT:.1}" y1="26.0" x2="{:.1}" y2="26.0""#, zero + 10.0 * unit);
        assert!(svg.contains(&whisker), "{whisker} in {svg}");
    }

    #[test]
    fn a_loss_goes_to_the_other_side() {
        let svg = plot(vec![row(-10.0, -4.0, 5.0)]);
        let unit = (WIDTH - LEFT - RIGHT) / 15.0;
        let bar = format!(r#"x="{:.1}" y="20.0" width="{:.1}""#, LEFT + 6.0 * unit, 4.0 * unit);
        assert!(svg.contains(&bar), "{bar} in {svg}");
    }

    #[test]
    fn a_long_label_is_cut_where_the_drawing_ends() {
        let short = shortened(&"A".repeat(100), WIDTH);
        assert!(short.ends_with('\u{2026}') && text_width(&short) <= WIDTH && short.chars().count() > 40, "{short}");
        assert_eq!(shortened("abc", WIDTH), "abc");
    }
}
