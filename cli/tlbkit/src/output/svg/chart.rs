//! Points and lines over two axes, with error bars: cycles against pages, rates against threads.

use super::axis::{Axis, Scale, Span};
use super::canvas::{Anchor, Canvas, WIDTH};
use super::legend::{self, Ink, Swatch, mark, stroke, whisker};

/// Curves of one plot.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The caption.
    pub(crate) title: String,
    /// What it shows, in words.
    pub(crate) about: String,
    /// The lower axis.
    pub(crate) x: Axis,
    /// The upright axis.
    pub(crate) y: Axis,
    /// Later ones are drawn over earlier ones.
    pub(crate) curves: Vec<Curve>,
}

/// What is drawn of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// Marks only.
    Points,
    /// The line only.
    Line,
    /// Marks joined by the line.
    Both,
}

/// One curve.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Its name in the legend.
    pub(crate) label: String,
    /// Whose numbers it shows.
    pub(crate) ink: Ink,
    /// Which colour and which mark, 0 to 3: the same for published and ours of one policy.
    pub(crate) tone: usize,
    /// What is drawn.
    pub(crate) draw: Draw,
    /// From left to right.
    pub(crate) points: Vec<Point>,
}

/// A point, with the standard deviation where there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Along the lower axis.
    pub(crate) x: f64,
    /// Along the upright axis.
    pub(crate) y: f64,
    /// Half the length of its error bar.
    pub(crate) spread: Option<f64>,
}

impl Point {
    /// A point without an error bar.
    pub(crate) fn new(x: f64, y: f64) -> Point {
        Point { x, y, spread: None }
    }
}

const LEFT: f64 = 50.0;
const RIGHT: f64 = 10.0;
const PLOT_HEIGHT: f64 = 230.0;
/// Curves with error bars stand this far apart, or the bars would hide each other.
const DODGE: f64 = 2.6;

/// Draws the plot.
pub(super) fn draw(plot: &Chart) -> Canvas {
    let mut canvas = Canvas::new();
    let top = legend::draw(&mut canvas, &plot.curves.iter().map(entry).collect::<Vec<_>>());
    canvas.text("axis", Anchor::Start, (2.0, top + 6.0), &plot.y.caption());
    let (high, low) = (top + 22.0, top + 22.0 + PLOT_HEIGHT);
    let points = || plot.curves.iter().flat_map(|curve| &curve.points);
    // A logarithmic span has room at its ends; an even one ends at its first and last point.
    let inset = if plot.x.scale == Scale::Log { 0.0 } else { 12.0 };
    let x = Span::new(plot.x.scale, points().map(|point| point.x), (LEFT + inset, WIDTH - RIGHT - inset), 8);
    let reach = points().flat_map(|point| {
        let spread = point.spread.unwrap_or(0.0);
        [point.y - spread, point.y + spread]
    });
    let y = Span::new(plot.y.scale, reach, (low, high), 5);
    draw_axes(&mut canvas, plot, (&x, &y), (high, low));
    let middle = (plot.curves.len() as f64 - 1.0) / 2.0;
    for (index, curve) in plot.curves.iter().enumerate() {
        let has_spread = curve.points.iter().any(|point| point.spread.is_some());
        let shift = if has_spread { (index as f64 - middle) * DODGE } else { 0.0 };
        draw_curve(&mut canvas, curve, (&x, &y), shift);
    }
    canvas
}

fn entry(curve: &Curve) -> (Swatch, String) {
    let swatch = match curve.draw {
        Draw::Points => Swatch::Mark(curve.tone, curve.ink),
        Draw::Line | Draw::Both => Swatch::Stroke(curve.tone, curve.ink),
    };
    (swatch, curve.label.clone())
}

fn draw_axes(canvas: &mut Canvas, plot: &Chart, (x, y): (&Span, &Span), (high, low): (f64, f64)) {
    for tick in x.ticks() {
        canvas.line("grid", (tick.place, high), (tick.place, low));
        canvas.text("", Anchor::Middle, (tick.place, low + 15.0), &tick.label.unwrap_or_default());
    }
    for tick in y.ticks() {
        canvas.line("grid", (LEFT, tick.place), (WIDTH - RIGHT, tick.place));
        canvas.text("", Anchor::End, (LEFT - 6.0, tick.place + 4.0), &tick.label.unwrap_or_default());
    }
    canvas.line("base", (LEFT, low), (WIDTH - RIGHT, low));
    canvas.line("base", (LEFT, low), (LEFT, high));
    canvas.text("axis", Anchor::Middle, ((LEFT + WIDTH - RIGHT) / 2.0, low + 33.0), &plot.x.caption());
    canvas.reach(low + 41.0);
}

fn draw_curve(canvas: &mut Canvas, curve: &Curve, (x, y): (&Span, &Span), shift: f64) {
    let class = stroke(curve.tone, curve.ink);
    let places: Vec<(f64, f64)> =
        curve.points.iter().map(|point| (x.place(point.x) + shift, y.place(point.y))).collect();
    if curve.draw != Draw::Points {
        canvas.polyline(&class, &places);
    }
    for (point, place) in curve.points.iter().zip(&places) {
        if let Some(spread) = point.spread {
            draw_whisker(canvas, curve.tone, place.0, (y.place(point.y - spread), y.place(point.y + spread)));
        }
        if curve.draw != Draw::Line {
            mark(canvas, curve.tone, curve.ink, *place);
        }
    }
}

/// An error bar with its two ends.
fn draw_whisker(canvas: &mut Canvas, tone: usize, x: f64, (low, high): (f64, f64)) {
    let class = whisker(tone);
    canvas.line(&class, (x, low), (x, high));
    for end in [low, high] {
        canvas.line(&class, (x - 3.5, end), (x + 3.5, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::svg::Plot;

    fn svg(draw: Draw, spread: Option<f64>) -> String {
        let points = [1.0, 10.0, 100.0].map(|x| Point { x, y: x * 500.0, spread }).to_vec();
        Plot::Chart(Chart {
            title: "t".into(),
            about: "d".into(),
            x: Axis::new("pages", "", Scale::Log),
            y: Axis::new("time", "cycles", Scale::Log),
            curves: vec![Curve { label: "INVPCID".into(), ink: Ink::Published, tone: 0, draw, points }],
        })
        .svg("x")
    }

    #[test]
    fn a_power_law_is_straight_on_two_logarithmic_axes() {
        let svg = svg(Draw::Line, None);
        let points = svg.split("points=\"").last().unwrap().split('"').next().unwrap();
        let places: Vec<(f64, f64)> = points
            .split(' ')
            .map(|pair| pair.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        let slope = |a: usize, b: usize| (places[b].1 - places[a].1) / (places[b].0 - places[a].0);
        assert!((slope(0, 1) - slope(1, 2)).abs() < 0.01, "{places:?}");
    }

    #[test]
    fn marks_lines_and_whiskers_come_when_asked_for() {
        let count = |svg: &str, needle: &str| svg.matches(needle).count();
        let points = svg(Draw::Points, None);
        assert_eq!((count(&points, "<circle"), count(&points, "<polyline")), (4, 0), "three and the legend's");
        let both = svg(Draw::Both, Some(50.0));
        assert_eq!(
            (count(&both, "<circle"), count(&both, "<polyline"), count(&both, "whisker")),
            (4, 2, 9),
            "a bar and two ends each"
        );
    }
}
