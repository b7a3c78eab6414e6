//! An answer as one HTML file: headings, words, tables and drawings in any order, in the look of the report.

use std::path::Path;

use anyhow::Result;
use maud::{Markup, PreEscaped, html};

use tlbkit_output::number::NONE;
use tlbkit_output::svg::Plot;
use tlbkit_output::{file, page};

/// A page.
pub(crate) struct Sheet {
    /// Its heading.
    pub(crate) title: String,
    /// The answer, before everything else, where there is one.
    pub(crate) verdict: Option<Headline>,
    /// What it is about, a paragraph each.
    pub(crate) about: Vec<String>,
    /// From top to bottom.
    pub(crate) parts: Vec<SheetPart>,
}

/// An answer in large letters.
pub(crate) struct Headline {
    pub(crate) tone: Tone,
    /// A line.
    pub(crate) words: String,
    /// Commands that follow from it.
    pub(crate) commands: Vec<String>,
}

/// The colour of an answer, which only repeats its words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Something is worth doing.
    Good,
    /// Nothing can be said.
    Open,
    /// Nothing is worth doing.
    Plain,
}

/// A part of a page.
pub(crate) enum SheetPart {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Words(String),
    /// Drawings, side by side where there is room.
    Plots(Vec<Plot>),
    /// Names of columns, and rows; wide ones scroll by themselves.
    Table(Vec<String>, Vec<Vec<String>>),
    /// Commands to copy.
    Commands(Vec<String>),
}

/// Writes the page to `path`, which is complete whenever it is there.
pub(crate) fn write(sheet: &Sheet, path: &Path) -> Result<()> {
    file::write_whole(path, &page(sheet))
}

fn page(sheet: &Sheet) -> String {
    let body = html! {
        @if let Some(verdict) = &sheet.verdict { (headline(verdict)) }
        @for words in &sheet.about { p { (words) } }
        @for (index, part) in sheet.parts.iter().enumerate() { (part_of(part, index)) }
    };
    page::around(&sheet.title, &body)
}

fn headline(headline: &Headline) -> Markup {
    let tone = match headline.tone {
        Tone::Good => "verdict good",
        Tone::Open => "verdict warn",
        Tone::Plain => "verdict",
    };
    html! {
        p class=(tone) { (headline.words) }
        @if !headline.commands.is_empty() { pre { (headline.commands.join("\n")) } }
    }
}

fn part_of(part: &SheetPart, index: usize) -> Markup {
    match part {
        SheetPart::Heading(text) => html! { h2 { (text) } },
        SheetPart::Words(text) => html! { p.soft { (text) } },
        SheetPart::Plots(plots) => html! { div.plots {
            @for (n, plot) in plots.iter().enumerate() {
                figure {
                    figcaption { (plot.title()) }
                    (PreEscaped(plot.svg(&format!("plot-{index}-{n}"))))
                }
            }
        } },
        // On a phone each row is a card: its first cell, and under it the others with the names of their columns, but
        // for those that have nothing to say.
        SheetPart::Table(head, rows) => html! { div.scroll { table.figures.free {
            thead { tr { @for cell in head { th { (cell) } } } }
            tbody { @for row in rows { tr {
                @for (index, (name, cell)) in head.iter().zip(row).enumerate() {
                    td data-label=[(index > 0).then_some(name)] class=[(cell == NONE).then_some("none")] { (cell) }
                }
            } } }
        } } },
        SheetPart::Commands(lines) => html! { pre { (lines.join("\n")) } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_beside_itself_and_text_stays_text() {
        let sheet = Sheet {
            title: "a <b> & c".into(),
            verdict: Some(Headline { tone: Tone::Good, words: "do <it>".into(), commands: vec!["run".into()] }),
            about: vec!["about".into()],
            parts: vec![SheetPart::Heading("h".into()), SheetPart::Table(vec!["x".into()], vec![vec!["<td>".into()]])],
        };
        let page = page(&sheet);
        assert!(page.contains("a &lt;b&gt; &amp; c") && page.contains("&lt;td&gt;"), "{page}");
        let order = ["a &lt;b&gt; &amp; c</h1>", "<p class=\"verdict good\">do &lt;it&gt;</p><pre>run</pre>", "about"];
        let places = order.map(|text| page.rfind(text).unwrap_or_else(|| panic!("{text} in {page}")));
        assert!(places.is_sorted(), "the answer is first: {places:?}");
        for forbidden in ["<script", "<link", "src=", "http"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}
