//! How published and our numbers are told apart, and the legend that says so: swatches with words, wrapped to the
//! width of the drawing.

use super::canvas::{Anchor, Canvas, WIDTH, text_width};

/// Whose numbers a mark shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// The document's: hollow, hatched, dashed.
    Published,
    /// This implementation's: solid.
    Ours,
}

/// How many tones differ in colour and mark; the next one is as the first.
const TONES: usize = 6;

/// Class of a line.
pub(super) fn stroke(tone: usize, ink: Ink) -> String {
    format!("curve {} l{}", word(ink), tone % TONES)
}

/// Class of the interval around a mark.
pub(super) fn whisker(tone: usize) -> String {
    format!("whisker l{}", tone % TONES)
}

fn word(ink: Ink) -> &'static str {
    match ink {
        Ink::Published => "published",
        Ink::Ours => "ours",
    }
}

/// A mark, whose shape differs by tone, so that print without colour can be read.
pub(super) fn mark(canvas: &mut Canvas, tone: usize, ink: Ink, (x, y): (f64, f64)) {
    let class = format!("mark {} l{}", word(ink), tone % TONES);
    match tone % TONES {
        0 => canvas.circle(&class, (x, y), 3.4),
        1 => canvas.polygon(&class, &[(x - 3.2, y - 3.2), (x + 3.2, y - 3.2), (x + 3.2, y + 3.2), (x - 3.2, y + 3.2)]),
        2 => canvas.polygon(&class, &[(x, y - 4.2), (x + 4.0, y + 3.2), (x - 4.0, y + 3.2)]),
        3 => canvas.polygon(&class, &[(x, y - 4.4), (x + 4.4, y), (x, y + 4.4), (x - 4.4, y)]),
        4 => canvas.polygon(&class, &[(x, y + 4.2), (x + 4.0, y - 3.2), (x - 4.0, y - 3.2)]),
        _ => canvas.polygon(&class, &[(x - 1.6, y - 4.0), (x + 1.6, y - 4.0), (x + 1.6, y + 4.0), (x - 1.6, y + 4.0)]),
    }
}

/// How a swatch is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Swatch {
    /// A filled box of the class; with a pattern if there is one.
    Box(String, Option<String>),
    /// A piece of a curve of this tone.
    Stroke(usize, Ink),
    /// A single mark of this tone.
    Mark(usize, Ink),
}

/// Height of a row.
const ROW: f64 = 18.0;
/// Width of a swatch and the gaps beside it.
const SWATCH: f64 = 30.0;

/// Draws the entries from the top and returns where the plot may begin.
pub(super) fn draw(canvas: &mut Canvas, entries: &[(Swatch, String)]) -> f64 {
    let (mut x, mut y) = (2.0, 12.0);
    // All cells are as wide as the widest, so that entries of several rows stand in columns.
    let width = SWATCH + entries.iter().map(|(_, words)| text_width(words)).fold(0.0, f64::max);
    for (swatch, words) in entries {
        if x > 2.0 && x + width > WIDTH {
            (x, y) = (2.0, y + ROW);
        }
        paint(canvas, swatch, x, y);
        canvas.text("", Anchor::Start, (x + 26.0, y + 4.0), words);
        x += width + 6.0;
    }
    y + ROW
}

fn paint(canvas: &mut Canvas, swatch: &Swatch, x: f64, y: f64) {
    match swatch {
        Swatch::Box(class, pattern) => {
            canvas.rect_filled(class, pattern.as_deref().unwrap_or(""), (x + 4.0, y - 6.0), (16.0, 12.0), "");
        }
        Swatch::Stroke(tone, ink) => {
            canvas.polyline(&stroke(*tone, *ink), &[(x, y), (x + 22.0, y)]);
            mark(canvas, *tone, *ink, (x + 11.0, y));
        }
        Swatch::Mark(tone, ink) => mark(canvas, *tone, *ink, (x + 11.0, y)),
    }
}
