//! The few shapes that the plots need, written as SVG with one digit after the point.

use std::fmt::Write;

use tlbkit_output::number::fixed;

/// Width of every drawing: about a phone, so that text is never scaled below what can be read.
pub(super) const WIDTH: f64 = 400.0;

/// Where a text is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// At its left end.
    Start,
    /// In its middle.
    Middle,
    /// At its right end.
    End,
}

/// A drawing under way.
#[derive(Default)]
pub(super) struct Canvas {
    body: String,
    height: f64,
}

/// A coordinate: one digit is a tenth of a pixel on a phone.
fn at(value: f64) -> String {
    fixed(value, 1)
}

/// Text that is safe between tags and in attributes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A cautious guess at the width of `text` in the small face: better a gap than an overlap.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_ascii_uppercase() || c == '_' { 8.8 } else { 7.2 }).sum()
}

impl Canvas {
    /// An empty drawing.
    pub(super) fn new() -> Canvas {
        Canvas::default()
    }

    /// Makes room down to `bottom`.
    pub(super) fn reach(&mut self, bottom: f64) {
        self.height = self.height.max(bottom);
    }

    /// Definitions such as patterns.
    pub(super) fn define(&mut self, definitions: &str) {
        let _ = write!(self.body, "<defs>{definitions}</defs>");
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (at(from.0), at(from.1), at(to.0), at(to.1));
        let _ = write!(self.body, r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#);
    }

    /// A line through points.
    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let joined: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", at(*x), at(*y))).collect();
        let _ = write!(self.body, r#"<polyline class="{class}" points="{}"/>"#, joined.join(" "));
    }

    /// A closed outline.
    pub(super) fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        let joined: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", at(*x), at(*y))).collect();
        let _ = write!(self.body, r#"<polygon class="{class}" points="{}"/>"#, joined.join(" "));
    }

    /// A rectangle by its corner and size; `label` shows when pointed at.
    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), label: &str) {
        self.rect_filled(class, "", corner, size, label);
    }

    /// A rectangle whose fill is the pattern `fill`, which wins over the class.
    pub(super) fn rect_filled(&mut self, class: &str, fill: &str, corner: (f64, f64), size: (f64, f64), label: &str) {
        let (x, y, width, height) = (at(corner.0), at(corner.1), at(size.0.max(0.0)), at(size.1.max(0.0)));
        let style = if fill.is_empty() { String::new() } else { format!(r#" style="fill:url(#{fill})""#) };
        let _ = write!(self.body, r#"<rect class="{class}"{style} x="{x}" y="{y}" width="{width}" height="{height}">"#);
        let _ = write!(self.body, "<title>{}</title></rect>", escaped(label));
    }

    /// What is drawn until [`end_labelled`](Self::end_labelled) shows `label` when pointed at.
    pub(super) fn begin_labelled(&mut self, label: &str) {
        let _ = write!(self.body, "<g><title>{}</title>", escaped(label));
    }

    /// Ends it.
    pub(super) fn end_labelled(&mut self) {
        self.body.push_str("</g>");
    }

    /// A circle.
    pub(super) fn circle(&mut self, class: &str, centre: (f64, f64), radius: f64) {
        let (x, y, r) = (at(centre.0), at(centre.1), at(radius));
        let _ = write!(self.body, r#"<circle class="{class}" cx="{x}" cy="{y}" r="{r}"/>"#);
    }

    /// A line of text; `class` is empty for the plain face.
    pub(super) fn text(&mut self, class: &str, anchor: Anchor, position: (f64, f64), text: &str) {
        let held = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (at(position.0), at(position.1));
        let class = if class.is_empty() { String::new() } else { format!(r#" class="{class}""#) };
        let _ = write!(self.body, r#"<text{class} x="{x}" y="{y}" text-anchor="{held}">{}</text>"#, escaped(text));
    }

    /// The whole element, with a title and a description for those who cannot see it, and with `style` inside.
    pub(super) fn finish(self, id: &str, title: &str, about: &str, style: &str) -> String {
        let (height, title, about) = (at(self.height.ceil()), escaped(title), escaped(about));
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {} {}" role="img" "#,
                r#"aria-labelledby="{}-title {}-desc"><title id="{}-title">{}</title><desc id="{}-desc">{}</desc>"#,
                "{}{}</svg>"
            ),
            WIDTH, height, id, id, id, title, id, about, style, self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out_of_its_element() {
        let mut canvas = Canvas::new();
        canvas.text("", Anchor::Start, (0.0, 0.0), "a<b & \"c\"");
        let svg = canvas.finish("p", "<t>", "d", "");
        assert!(svg.contains(">a&lt;b &amp; &quot;c&quot;</text>") && svg.contains(">&lt;t&gt;</title>"));
    }

    #[test]
    fn coordinates_have_one_digit_and_no_negative_zero() {
        let mut canvas = Canvas::new();
        canvas.line("grid", (-0.01, 1.0 / 3.0), (2.0, 10.06));
        assert!(canvas.body.contains(r#"x1="0.0" y1="0.3" x2="2.0" y2="10.1""#), "{}", canvas.body);
    }
}
