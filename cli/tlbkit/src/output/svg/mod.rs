//! Plots as inline SVG: real text, deterministic bytes, no script.
//!
//! Every drawing is 400 units wide, about a phone, so that its text is never scaled below what can be read. Colours
//! come from classes (`c0` ...) that the page sets for light, dark and print; published and ours differ by outline,
//! hatching and dashes, not by colour.

mod axis;
mod bars;
mod canvas;
mod chart;
mod legend;
mod panels;
mod ratios;
mod stacked;

pub(crate) use axis::{Axis, Scale};
pub(crate) use bars::{BarGroup, Bars};
pub(crate) use chart::{Chart, Curve, Draw, Point};
pub(crate) use legend::Ink;
pub(crate) use panels::{Panel, PanelRow, Panels, Ratio};
pub(crate) use ratios::{RatioRow, Ratios};
pub(crate) use stacked::{Stacked, StackedRow};

/// The colours of a page, and the look of its drawings.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// Any drawing of a section.
#[derive(Clone, Debug)]
pub(crate) enum Plot {
    /// Upright bars in groups: published and ours side by side.
    Bars(Bars),
    /// Lying bars made of parts.
    Stacked(Stacked),
    /// Marks around one: predicted by published.
    Ratios(Ratios),
    /// The same beside each other: what was measured by what it is compared with.
    Panels(Panels),
    /// Points and lines over two axes, either of which may be logarithmic; with error bars.
    Chart(Chart),
}

impl Plot {
    /// The caption.
    pub(crate) fn title(&self) -> &str {
        match self {
            Plot::Bars(plot) => &plot.title,
            Plot::Stacked(plot) => &plot.title,
            Plot::Ratios(plot) => &plot.title,
            Plot::Panels(plot) => &plot.title,
            Plot::Chart(plot) => &plot.title,
        }
    }

    /// What it shows, for those who cannot see it.
    pub(crate) fn about(&self) -> &str {
        match self {
            Plot::Bars(plot) => &plot.about,
            Plot::Stacked(plot) => &plot.about,
            Plot::Ratios(plot) => &plot.about,
            Plot::Panels(plot) => &plot.about,
            Plot::Chart(plot) => &plot.about,
        }
    }

    /// The drawing; `id` must be unique in the page.
    pub(crate) fn svg(&self, id: &str) -> String {
        self.drawing(id, "")
    }

    /// The drawing as a file that stands alone.
    pub(crate) fn file(&self) -> String {
        self.drawing("plot", &format!("<style>{STYLE}</style>")) + "\n"
    }

    fn drawing(&self, id: &str, style: &str) -> String {
        let canvas = match self {
            Plot::Bars(plot) => bars::draw(plot, id),
            Plot::Stacked(plot) => stacked::draw(plot),
            Plot::Ratios(plot) => ratios::draw(plot),
            Plot::Panels(plot) => panels::draw(plot),
            Plot::Chart(plot) => chart::draw(plot),
        };
        canvas.finish(id, self.title(), self.about(), style)
    }
}
